//! What the addon exports to C: an allocator over the process's active arena, with the signatures
//! that pluggable GPU allocators take.
//!
//! ```c
//! void *mx_malloc(ssize_t size, int device, void *stream);
//! void mx_free(void *address, ssize_t size, int device, void *stream);
//! ```
//! Any thread. `device` is the number of a CUDA device, -1 the host. Neither call waits for a
//! stream: who frees memory has waited for the work that uses it. Failures give null, or nothing;
//! JavaScript hears of them.

use std::ffi::{c_int, c_void};
use std::ptr;

use mx_core::arena::{Activation, ActiveArena};
use mx_core::error::Error;
use napi::bindgen_prelude::{FnArgs, Function};
use napi::threadsafe_function::ThreadsafeFunctionCallMode;
use napi_derive::napi;

use crate::arena::NativeArena;
use crate::failure::{failure_json, thrown};

/// How C callers name the host.
const HOST: i32 = -1;

static ACTIVE: ActiveArena = ActiveArena::new();

/// Null without an active arena, for another device than its own, and where the arena or its device
/// refuses.
#[unsafe(no_mangle)]
pub extern "C" fn mx_malloc(size: isize, device: c_int, _stream: *mut c_void) -> *mut c_void {
    ACTIVE.malloc(size, device).map_or(ptr::null_mut(), |address| address as *mut c_void)
}

/// An address that the active arena did not give out does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn mx_free(address: *mut c_void, _size: isize, _device: c_int, _stream: *mut c_void) {
    ACTIVE.free(address as usize);
}

type ReportArgs = FnArgs<(String, String)>;

/// The arena that `mx_malloc` and `mx_free`, exported to C, act on; its backend must be native.
/// `device`: number of its CUDA device, null for the host. `report`: what C callers are not told;
/// it keeps no process alive. ERR_ARENA_ACTIVE over another that is open.
#[napi]
pub fn set_active_arena(
    arena: Option<&NativeArena>,
    device: Option<i32>,
    #[napi(ts_arg_type = "(operation: string, failureJson: string) => void")] report: Function<'_, ReportArgs, ()>,
) -> napi::Result<()> {
    let Some(arena) = arena else {
        return ACTIVE.set(None).map_err(thrown);
    };
    let report = report.build_threadsafe_function::<ReportArgs>().callee_handled::<false>().weak::<true>().build()?;
    let tell = move |operation: &'static str, error: &Error| {
        report.call((operation.to_owned(), failure_json(error)).into(), ThreadsafeFunctionCallMode::NonBlocking);
    };
    ACTIVE.set(Some(Activation::new(arena.arena(), device.unwrap_or(HOST), tell))).map_err(thrown)
}

/// ERR_ARENA_ACTIVE where an arena is active that is open.
#[napi]
pub fn require_no_active_arena() -> napi::Result<()> {
    ACTIVE.require_none_but(None).map_err(thrown)
}
