//! The moment before a thread of JavaScript gives up its buffers.
//!
//! The engine then runs the finalizers of all of them, though memory that was moved out of one may
//! be in the hands of another thread, and nobody tells when that stops reading. Which memory was
//! moved cannot be seen any more by then. So it is looked at earlier: the event loop turns once
//! more to close its handles, when no JavaScript can run and every buffer is as it was left.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use napi::sys;

use super::{External, fresh};

type Handle = *mut c_void;

/// `UV_PREPARE` of uv.h: a handle whose callback runs once in every turn of the loop.
const PREPARE: c_int = 9;

#[derive(Default)]
struct Thread {
    environments: HashSet<sys::napi_env>,
    externals: HashSet<*const External>,
}

thread_local!(static THREAD: RefCell<Thread> = RefCell::default());

/// libuv, as the process exports it: part of Node's interface for addons.
struct Uv {
    handle_size: unsafe extern "C" fn(c_int) -> usize,
    set_data: unsafe extern "C" fn(Handle, *mut c_void),
    get_data: unsafe extern "C" fn(Handle) -> *mut c_void,
    prepare_init: unsafe extern "C" fn(*mut sys::uv_loop_s, Handle) -> c_int,
    prepare_start: unsafe extern "C" fn(Handle, unsafe extern "C" fn(Handle)) -> c_int,
    unref: unsafe extern "C" fn(Handle),
    close: unsafe extern "C" fn(Handle, unsafe extern "C" fn(Handle)),
}

impl Uv {
    fn get() -> Option<&'static Self> {
        static UV: OnceLock<Option<Uv>> = OnceLock::new();
        UV.get_or_init(Self::find).as_ref()
    }

    fn find() -> Option<Self> {
        // SAFETY: looking a name up has no effects; the signatures are those of uv.h, which libuv
        // keeps within its major version.
        unsafe {
            let find = |name: &CStr| Some(libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr())).filter(|symbol| !symbol.is_null());
            Some(Uv {
                handle_size: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int) -> usize>(find(c"uv_handle_size")?),
                set_data: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(Handle, *mut c_void)>(find(c"uv_handle_set_data")?),
                get_data: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(Handle) -> *mut c_void>(find(c"uv_handle_get_data")?),
                prepare_init: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut sys::uv_loop_s, Handle) -> c_int>(find(
                    c"uv_prepare_init",
                )?),
                prepare_start: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(Handle, unsafe extern "C" fn(Handle)) -> c_int>(
                    find(c"uv_prepare_start")?,
                ),
                unref: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(Handle)>(find(c"uv_unref")?),
                close: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(Handle, unsafe extern "C" fn(Handle))>(find(c"uv_close")?),
            })
        }
    }
}

/// From now on, until `unwatch`. False where turns of the loop cannot be seen.
pub fn watch(env: sys::napi_env, external: *const External) -> bool {
    let first = THREAD.with_borrow_mut(|thread| {
        thread.externals.insert(external);
        thread.environments.insert(env)
    });
    if first {
        install(env);
    }
    Uv::get().is_some()
}

pub fn unwatch(external: *const External) {
    let _ = THREAD.try_with(|thread| thread.borrow_mut().externals.remove(&external));
}

/// Without libuv nothing is looked at.
fn install(env: sys::napi_env) {
    let Some(uv) = Uv::get() else { return };
    let mut event_loop = ptr::null_mut();
    // SAFETY: a handle of libuv's own size, zeroed, that lives until libuv says that it is closed.
    // It keeps no loop running.
    unsafe {
        if sys::napi_get_uv_event_loop(env, &mut event_loop) != sys::Status::napi_ok {
            return;
        }
        let handle = libc::calloc(1, (uv.handle_size)(PREPARE));
        if handle.is_null() {
            return;
        }
        (uv.prepare_init)(event_loop, handle);
        (uv.set_data)(handle, env.cast());
        (uv.prepare_start)(handle, look);
        (uv.unref)(handle);
        sys::napi_add_async_cleanup_hook(env, Some(close), handle, ptr::null_mut());
    }
}

/// In every turn of the loop.
unsafe extern "C" fn look(handle: Handle) {
    let Some(uv) = Uv::get() else { return };
    // SAFETY: the handle is open, and its data the environment, which outlives it.
    let env: sys::napi_env = unsafe { (uv.get_data)(handle) }.cast();
    if !is_ending(env) {
        fresh::let_go();
        return;
    }
    let externals: Vec<_> = THREAD.with_borrow(|thread| thread.externals.iter().copied().collect());
    for external in externals {
        // SAFETY: watched, so its finalizer has not run, and that keeps it.
        let external = unsafe { &*external };
        if external.env == env {
            external.keep_if_moved();
        }
    }
}

/// True once no JavaScript can run.
fn is_ending(env: sys::napi_env) -> bool {
    // SAFETY: whether JavaScript can run is looked at before the arguments, which are refused.
    let status = unsafe { sys::napi_get_named_property(env, ptr::null_mut(), ptr::null(), ptr::null_mut()) };
    status != sys::Status::napi_invalid_arg
}

unsafe extern "C" fn close(hook: sys::napi_async_cleanup_hook_handle, handle: *mut c_void) {
    let Some(uv) = Uv::get() else { return };
    // SAFETY: open, and closed once.
    unsafe {
        let env: sys::napi_env = (uv.get_data)(handle).cast();
        let _ = THREAD.try_with(|thread| thread.borrow_mut().environments.remove(&env));
        (uv.set_data)(handle, hook.cast());
        (uv.close)(handle, closed);
    }
}

unsafe extern "C" fn closed(handle: Handle) {
    let Some(uv) = Uv::get() else { return };
    // SAFETY: libuv is done with the handle; its data is the hook, which is removed once.
    unsafe {
        let hook: sys::napi_async_cleanup_hook_handle = (uv.get_data)(handle).cast();
        libc::free(handle);
        sys::napi_remove_async_cleanup_hook(hook);
    }
}
