//! The thread and its rules over a table of functions that fail on demand; the real NIXL is tried
//! from TypeScript.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::api::{AgentConfig, Handle};
use super::*;
use crate::error::Result;

/// Calls in order, the one that fails, and the status that `get_xfer_status` answers.
struct World {
    calls: Vec<&'static str>,
    fail: Option<&'static str>,
    transfer_status: c_int,
}

static WORLD: Mutex<World> = Mutex::new(World { calls: Vec::new(), fail: None, transfer_status: 0 });
static SERIAL: Mutex<()> = Mutex::new(());

fn world() -> MutexGuard<'static, World> {
    WORLD.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn begin() -> MutexGuard<'static, ()> {
    let serial = SERIAL.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    *world() = World { calls: Vec::new(), fail: None, transfer_status: 0 };
    serial
}

fn called(name: &'static str) -> c_int {
    let mut world = world();
    world.calls.push(name);
    if world.fail == Some(name) { -2 } else { 0 }
}

/// Every handle is this; nothing looks behind it.
const SOMETHING: Handle = 8 as Handle;

fn gives(name: &'static str, place: *mut Handle) -> c_int {
    // SAFETY: the caller's place for a result.
    unsafe { *place = SOMETHING };
    called(name)
}

unsafe extern "C" fn create_agent(_: *const c_char, _: *const AgentConfig, agent: *mut Handle) -> c_int {
    gives("create_agent", agent)
}
unsafe extern "C" fn destroy_agent(_: Handle) -> c_int {
    called("destroy_agent")
}
unsafe extern "C" fn get_local_md(_: Handle, data: *mut *mut c_void, length: *mut usize) -> c_int {
    // SAFETY: places for results.
    unsafe {
        *data = std::ptr::null_mut();
        *length = 0;
    }
    called("get_local_md")
}
unsafe extern "C" fn load_remote_md(_: Handle, _: *const c_void, _: usize, _: *mut *mut c_char) -> c_int {
    -2
}
unsafe extern "C" fn invalidate_remote_md(_: Handle, _: *const c_char) -> c_int {
    0
}
unsafe extern "C" fn give_list(_: Handle, list: *mut Handle) -> c_int {
    gives("get_available_plugins", list)
}
unsafe extern "C" fn list_size(_: Handle, size: *mut usize) -> c_int {
    // SAFETY: a place for the result.
    unsafe { *size = 1 };
    0
}
unsafe extern "C" fn list_get(_: Handle, _: usize, text: *mut *const c_char) -> c_int {
    // SAFETY: a place for the result.
    unsafe { *text = c"FAKE".as_ptr() };
    0
}
unsafe extern "C" fn drop_quietly(_: Handle) -> c_int {
    0
}
unsafe extern "C" fn get_plugin_params(_: Handle, _: *const c_char, memories: *mut Handle, parameters: *mut Handle) -> c_int {
    gives("get_plugin_params", memories);
    // SAFETY: a place for the result.
    unsafe { *parameters = SOMETHING };
    if world().fail == Some("get_plugin_params") { -2 } else { 0 }
}
unsafe extern "C" fn params_add(_: Handle, _: *const c_char, _: *const c_char) -> c_int {
    called("params_add")
}
unsafe extern "C" fn create_backend(_: Handle, _: *const c_char, _: Handle, backend: *mut Handle) -> c_int {
    gives("create_backend", backend)
}
unsafe extern "C" fn destroy_backend(_: Handle) -> c_int {
    called("destroy_backend")
}
unsafe extern "C" fn create_opt_args(args: *mut Handle) -> c_int {
    gives("create_opt_args", args)
}
unsafe extern "C" fn add_backend(_: Handle, _: Handle) -> c_int {
    called("opt_args_add_backend")
}
unsafe extern "C" fn destroy_opt_args(_: Handle) -> c_int {
    called("destroy_opt_args")
}
unsafe extern "C" fn create_list(_: c_int, list: *mut Handle, _: bool) -> c_int {
    gives("create_list", list)
}
unsafe extern "C" fn add_registered(_: Handle, _: usize, _: usize, _: u64, _: *const c_void, _: usize) -> c_int {
    called("add_desc")
}
unsafe extern "C" fn add_moved(_: Handle, _: usize, _: usize, _: u64) -> c_int {
    called("add_desc")
}
unsafe extern "C" fn destroy_list(_: Handle) -> c_int {
    called("destroy_list")
}
unsafe extern "C" fn register_mem(_: Handle, _: Handle, _: Handle) -> c_int {
    called("register_mem")
}
unsafe extern "C" fn deregister_mem(_: Handle, _: Handle, _: Handle) -> c_int {
    called("deregister_mem")
}
unsafe extern "C" fn create_request(_: Handle, _: c_int, _: Handle, _: Handle, _: *const c_char, request: *mut Handle, _: Handle) -> c_int {
    gives("create_xfer_req", request)
}
unsafe extern "C" fn post(_: Handle, _: Handle, _: Handle) -> c_int {
    if called("post_xfer_req") == 0 { 1 } else { -2 }
}
unsafe extern "C" fn status(_: Handle, _: Handle) -> c_int {
    world().transfer_status
}
unsafe extern "C" fn release(_: Handle, _: Handle) -> c_int {
    called("release_xfer_req")
}
unsafe extern "C" fn destroy_request(_: Handle) -> c_int {
    called("destroy_xfer_req")
}

fn table() -> Arc<NixlApi> {
    Arc::new(NixlApi {
        create_configured_agent: create_agent,
        destroy_agent,
        get_local_md,
        load_remote_md,
        invalidate_remote_md,
        get_available_plugins: give_list,
        string_list_size: list_size,
        string_list_get: list_get,
        destroy_string_list: drop_quietly,
        get_plugin_params,
        params_add,
        destroy_params: drop_quietly,
        destroy_mem_list: drop_quietly,
        create_backend,
        destroy_backend,
        create_opt_args,
        opt_args_add_backend: add_backend,
        destroy_opt_args,
        create_reg_dlist: create_list,
        reg_dlist_add_desc: add_registered,
        destroy_reg_dlist: destroy_list,
        register_mem,
        deregister_mem,
        create_xfer_dlist: create_list,
        xfer_dlist_add_desc: add_moved,
        destroy_xfer_dlist: destroy_list,
        create_xfer_req: create_request,
        post_xfer_req: post,
        get_xfer_status: status,
        release_xfer_req: release,
        destroy_xfer_req: destroy_request,
        path: "a table".to_owned(),
    })
}

/// An answer, and where it arrives.
fn ask<T: Send + 'static>() -> (Answer<T>, Receiver<Result<T>>) {
    let (sender, receiver) = channel();
    (Box::new(move |outcome| sender.send(outcome).unwrap_or(())), receiver)
}

fn wait<T>(receiver: &Receiver<T>) -> T {
    receiver.recv_timeout(Duration::from_secs(10)).expect("an answer within ten seconds")
}

fn make(strands: bool) -> (Result<Vec<String>>, AgentThread) {
    let plugin = PluginSpec { name: "FAKE".to_owned(), parameters: vec![("key".to_owned(), "value".to_owned())], strands };
    let spec = AgentSpec { name: "test".to_owned(), progress_thread: false, listen_port: None, plugins: vec![plugin] };
    let (answer, answered) = ask();
    let thread = AgentThread::start(table(), spec, answer).expect("a thread");
    (wait(&answered), thread)
}

/// Tells when the last copy is gone.
struct Held(Arc<AtomicBool>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn register(thread: &AgentThread) -> (Result<u64>, Arc<AtomicBool>) {
    let gone = Arc::new(AtomicBool::new(false));
    let piece = Descriptor { address: 4096, length: 64, device: 0 };
    let keep: Vec<Keep> = vec![Arc::new(Held(Arc::clone(&gone)))];
    let (answer, answered) = ask();
    thread.register(RegistrationSpec { plugin: 0, kind: Kind::Dram, descriptors: vec![piece], keep }, answer);
    (wait(&answered), gone)
}

fn transfer(thread: &AgentThread, registration: u64) -> Result<u64> {
    let side = |kind| Side { kind, descriptors: vec![Descriptor { address: 512, length: 64, device: 3 }] };
    let spec = TransferSpec {
        plugin: 0,
        write: false,
        local: side(Kind::Dram),
        remote: side(Kind::File),
        agent: None,
        registrations: vec![registration],
        file: Some("/weights".to_owned()),
    };
    let (answer, answered) = ask();
    thread.create_transfer(spec, answer);
    wait(&answered)
}

fn post_it(thread: &AgentThread, number: u64) -> (Receiver<Result<()>>, Arc<AtomicUsize>) {
    let (done, over) = ask();
    let settled = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&settled);
    thread.post(
        number,
        done,
        Box::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
        }),
    );
    (over, settled)
}

fn close(thread: &AgentThread) -> Result<()> {
    let (answer, answered) = ask();
    thread.close(answer);
    wait(&answered)
}

fn deregister(thread: &AgentThread, number: u64) -> Result<()> {
    let (answer, answered) = ask();
    thread.deregister(number, answer);
    wait(&answered)
}

fn release_it(thread: &AgentThread, number: u64) -> Result<()> {
    let (answer, answered) = ask();
    thread.release_transfer(number, answer);
    wait(&answered)
}

fn code<T: std::fmt::Debug>(outcome: Result<T>) -> &'static str {
    outcome.expect_err("a failure").code
}

fn count(name: &str) -> usize {
    world().calls.iter().filter(|call| **call == name).count()
}

#[test]
fn a_life_from_beginning_to_end_in_the_right_order() {
    let _serial = begin();
    let (made, thread) = make(false);
    assert_eq!(made.expect("an agent"), ["FAKE"]);
    let (registered, gone) = register(&thread);
    let registration = registered.expect("a registration");
    let number = transfer(&thread, registration).expect("a transfer");
    let (over, settled) = post_it(&thread, number);
    wait(&over).expect("success");
    release_it(&thread, number).expect("released");
    assert_eq!(settled.load(Ordering::SeqCst), 1);
    assert!(!gone.load(Ordering::SeqCst));
    deregister(&thread, registration).expect("deregistered");
    assert!(gone.load(Ordering::SeqCst));
    close(&thread).expect("closed");
    let calls = world().calls.clone();
    let kept: Vec<_> = calls.iter().filter(|call| !["add_desc", "create_list", "destroy_list", "params_add"].contains(*call)).collect();
    assert_eq!(
        kept,
        [
            &"create_agent",
            &"get_plugin_params",
            &"create_backend",
            &"create_opt_args",
            &"opt_args_add_backend",
            &"get_available_plugins",
            &"register_mem",
            &"create_xfer_req",
            &"post_xfer_req",
            &"release_xfer_req",
            &"destroy_xfer_req",
            &"deregister_mem",
            &"destroy_opt_args",
            &"destroy_backend",
            &"destroy_agent",
        ]
    );
    assert_eq!(count("create_list"), count("destroy_list"));
    assert_eq!(code(close(&thread)), "ERR_NIXL_CLOSED");
    assert_eq!(code(register(&thread).0), "ERR_NIXL_CLOSED");
}

#[test]
fn an_agent_that_cannot_be_made_undoes_what_was() {
    for (fail, expected, undone) in [
        ("create_agent", "ERR_NIXL_AGENT", [0, 0, 0]),
        ("get_plugin_params", "ERR_NIXL_PLUGIN", [0, 0, 1]),
        ("params_add", "ERR_NIXL_PLUGIN", [0, 0, 1]),
        ("create_backend", "ERR_NIXL_PLUGIN", [0, 0, 1]),
        ("create_opt_args", "ERR_NIXL_PLUGIN", [1, 1, 1]),
        ("opt_args_add_backend", "ERR_NIXL_PLUGIN", [1, 1, 1]),
        ("get_available_plugins", "ERR_NIXL_AGENT", [1, 1, 1]),
    ] {
        let _serial = begin();
        world().fail = Some(fail);
        assert_eq!(code(make(false).0), expected, "{fail}");
        assert_eq!([count("destroy_opt_args"), count("destroy_backend"), count("destroy_agent")], undone, "{fail}");
    }
}

#[test]
fn a_registration_in_use_stays_and_a_failed_one_leaves_nothing() {
    let _serial = begin();
    let (_, thread) = make(false);
    let (registered, gone) = register(&thread);
    let registration = registered.expect("a registration");
    let number = transfer(&thread, registration).expect("a transfer");
    let busy = deregister(&thread, registration).expect_err("busy");
    assert_eq!(busy.code, "ERR_NIXL_BUSY");
    assert!(busy.message.contains("64 bytes of FILE at 0x200"), "{}", busy.message);
    release_it(&thread, number).expect("released without being posted");
    world().fail = Some("register_mem");
    let (refused, lost) = register(&thread);
    assert_eq!(code(refused), "ERR_NIXL_REGISTER");
    assert!(lost.load(Ordering::SeqCst));
    world().fail = Some("create_xfer_req");
    let error = transfer(&thread, registration).expect_err("refused");
    assert_eq!(error.code, "ERR_NIXL_TRANSFER");
    assert!(error.facts.contains(&("file", "/weights".into())) && error.facts.contains(&("offset", 512u64.into())));
    world().fail = None;
    close(&thread).expect("closed");
    assert!(gone.load(Ordering::SeqCst));
    assert_eq!(count("create_list"), count("destroy_list"));
}

#[test]
fn an_aborted_transfer_settles_only_when_its_status_is_final() {
    let _serial = begin();
    let (_, thread) = make(false);
    let (registered, gone) = register(&thread);
    let registration = registered.expect("a registration");
    world().transfer_status = 1;
    let number = transfer(&thread, registration).expect("a transfer");
    let (over, settled) = post_it(&thread, number);
    thread.abort(number);
    assert_eq!(code(wait(&over)), "ERR_TRANSFER_ABORTED");
    assert_eq!(code(release_it(&thread, number)), "ERR_NIXL_BUSY");
    assert_eq!(settled.load(Ordering::SeqCst), 0);
    // Closing waits as well, and refuses everything meanwhile.
    let (answer, closed) = ask();
    thread.close(answer);
    assert_eq!(code(register(&thread).0), "ERR_NIXL_CLOSED");
    assert!(closed.recv_timeout(Duration::from_millis(20)).is_err());
    assert!(!gone.load(Ordering::SeqCst));
    world().transfer_status = 0;
    wait(&closed).expect("closed");
    assert_eq!(settled.load(Ordering::SeqCst), 1);
    assert!(gone.load(Ordering::SeqCst));
}

#[test]
fn a_failure_of_a_plugin_that_strands_reads_settles_with_the_agent() {
    let _serial = begin();
    let (_, thread) = make(true);
    let (registered, gone) = register(&thread);
    let registration = registered.expect("a registration");
    let number = transfer(&thread, registration).expect("a transfer");
    world().transfer_status = -2;
    let (over, settled) = post_it(&thread, number);
    let error = wait(&over).expect_err("a failure");
    assert_eq!(error.code, "ERR_NIXL_TRANSFER");
    assert!(error.facts.contains(&("status", "NIXL_CAPI_ERROR_BACKEND".into())));
    assert_eq!(code(release_it(&thread, number)), "ERR_NIXL_BUSY");
    assert_eq!(code(transfer(&thread, registration)), "ERR_NIXL_BROKEN");
    assert_eq!(settled.load(Ordering::SeqCst), 0);
    close(&thread).expect("closed");
    assert_eq!(settled.load(Ordering::SeqCst), 1);
    assert!(gone.load(Ordering::SeqCst));
}

#[test]
fn the_same_failure_of_another_plugin_is_final() {
    let _serial = begin();
    let (_, thread) = make(false);
    let registration = register(&thread).0.expect("a registration");
    let number = transfer(&thread, registration).expect("a transfer");
    world().fail = Some("post_xfer_req");
    let (over, settled) = post_it(&thread, number);
    assert_eq!(code(wait(&over)), "ERR_NIXL_TRANSFER");
    release_it(&thread, number).expect("released");
    assert_eq!(settled.load(Ordering::SeqCst), 1);
    let (again, _) = post_it(&thread, number);
    assert_eq!(code(wait(&again)), "ERR_INTERNAL");
    close(&thread).expect("closed");
}

#[test]
fn what_nixl_refuses_to_give_back_is_tried_again_at_the_end() {
    for (fail, expected) in [("release_xfer_req", "ERR_NIXL_RELEASE"), ("deregister_mem", "ERR_NIXL_DEREGISTER")] {
        let _serial = begin();
        let (_, thread) = make(false);
        let (registered, gone) = register(&thread);
        let registration = registered.expect("a registration");
        let number = transfer(&thread, registration).expect("a transfer");
        let (over, _) = post_it(&thread, number);
        wait(&over).expect("success");
        world().fail = Some(fail);
        let first = if fail == "deregister_mem" {
            release_it(&thread, number).expect("released");
            deregister(&thread, registration)
        } else {
            release_it(&thread, number)
        };
        assert_eq!(code(first), expected);
        assert!(!gone.load(Ordering::SeqCst), "{fail}");
        world().fail = None;
        close(&thread).expect("closed at the second attempt");
        assert!(gone.load(Ordering::SeqCst), "{fail}");
        assert_eq!(count("destroy_agent"), 1, "{fail}");
    }
}

#[test]
fn an_agent_with_something_left_in_it_is_not_destroyed() {
    let _serial = begin();
    let (_, thread) = make(false);
    let (registered, gone) = register(&thread);
    registered.expect("a registration");
    world().fail = Some("deregister_mem");
    assert_eq!(code(close(&thread)), "ERR_NIXL_DEREGISTER");
    assert_eq!([count("destroy_backend"), count("destroy_agent")], [0, 0]);
    // NIXL may still touch the memory.
    assert!(!gone.load(Ordering::SeqCst));
}

#[test]
fn ending_goes_on_after_an_error_and_tells_it() {
    for fail in ["destroy_opt_args", "destroy_backend", "destroy_agent"] {
        let _serial = begin();
        let (_, thread) = make(false);
        world().fail = Some(fail);
        assert_eq!(code(close(&thread)), "ERR_NIXL_CLOSE", "{fail}");
        assert_eq!(count("destroy_agent"), 1, "{fail}");
    }
}

#[test]
fn an_agent_that_is_dropped_ends_by_itself() {
    let _serial = begin();
    let (_, thread) = make(false);
    let (registered, gone) = register(&thread);
    let registration = registered.expect("a registration");
    world().transfer_status = 1;
    let number = transfer(&thread, registration).expect("a transfer");
    let (over, _) = post_it(&thread, number);
    drop(thread);
    assert_eq!(code(wait(&over)), "ERR_TRANSFER_ABORTED");
    world().transfer_status = 0;
    for _ in 0..1000 {
        if count("destroy_agent") == 1 {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(count("destroy_agent"), 1);
    assert!(gone.load(Ordering::SeqCst));
}

#[test]
fn a_library_that_is_not_there_or_not_nixl_says_why() {
    let absent = NixlApi::load("/nowhere/libnixl_capi.so").err().expect("a failure");
    assert_eq!(absent.code, "ERR_NIXL_LOAD");
    assert!(absent.message.contains("/nowhere/libnixl_capi.so"), "{}", absent.message);
    let other = NixlApi::load("libc.so.6").err().expect("a failure");
    assert_eq!(other.code, "ERR_NIXL_SYMBOLS");
    let starts = "libc.so.6 lacks 31 of the functions needed: nixl_capi_create_configured_agent, ";
    assert!(other.message.starts_with(starts) && other.message.ends_with(", ..."), "{}", other.message);
    let missing = other.facts.iter().find(|(name, _)| *name == "missing").map(|(_, fact)| format!("{fact:?}"));
    assert!(missing.is_some_and(|missing| missing.contains("nixl_capi_create_xfer_req")));
    assert!(why_not_loadable("libc.so.6").is_none());
    assert!(why_not_loadable("libno-such.so").is_some());
}

#[test]
fn a_panic_keeps_what_nixl_still_uses_and_answers_everyone() {
    let _serial = begin();
    world().transfer_status = 1; // In flight for ever.
    let (made, thread) = make(false);
    made.expect("an agent");
    let (registered, gone) = register(&thread);
    let number = transfer(&thread, registered.expect("a registration")).expect("a transfer");
    let (over, settled) = post_it(&thread, number);
    thread.metadata(Box::new(|_| panic!("an answer that panics")));
    let error = wait(&over).expect_err("nobody looks after it any more");
    assert_eq!(error.code, "ERR_INTERNAL");
    assert_eq!(close(&thread).expect_err("the thread is gone").code, "ERR_NIXL_CLOSED");
    drop(thread);
    assert!(!gone.load(Ordering::SeqCst), "the memory is let go although NIXL reads into it");
    assert_eq!(settled.load(Ordering::SeqCst), 0);
    assert_eq!((count("release_xfer_req"), count("deregister_mem"), count("destroy_agent")), (0, 0, 0));
}

#[test]
fn a_panic_while_closing_answers_the_close() {
    let _serial = begin();
    world().transfer_status = 1;
    let (made, thread) = make(false);
    made.expect("an agent");
    let (registered, gone) = register(&thread);
    let number = transfer(&thread, registered.expect("a registration")).expect("a transfer");
    // What the abort at the start of the close tells panics.
    thread.post(number, Box::new(|_| panic!("an answer that panics")), Box::new(|| {}));
    assert_eq!(close(&thread).expect_err("closing failed").code, "ERR_INTERNAL");
    assert!(!gone.load(Ordering::SeqCst));
}
