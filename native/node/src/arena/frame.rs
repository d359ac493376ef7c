//! The hot calls around a backend that JavaScript drives: `ArenaFrame` of
//! `src/native/hand-typed.ts`.
//!
//! JavaScript may be torn away from between two calls: its stack may be exhausted, its thread may
//! end. What it says about a claim is in memory that both sides see, and the next call acts on it,
//! so that no claim stays open.
//!
//! Plain functions of the C interface instead of a class of napi-rs, whose wrapper costs 0.3 us a
//! call; values travel through an array that both sides see, because each argument and result
//! costs, too. A call here takes 12 to 25 ns.

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use mx_core::arena::{Allocation, Arena, Claim};
use mx_core::error::Error;
use napi::bindgen_prelude::{FromNapiValue, Object};
use napi::{Env, JsError, JsValue, Result, check_status, sys};

use super::address::{Address, size};
use super::views::Views;
use crate::failure::thrown;

/// Places in `registers`.
const ADDRESS: usize = 0;
const BYTES: usize = 1;
const HANDLE: usize = 2;
/// 1 once the memory of the claim is there, and its handle in the registers.
const MAPPED: usize = 3;
const REGISTERS: usize = 4;

pub struct Frame {
    arena: Arc<Arena>,
    views: Rc<Views>,
    /// From `claim` to the next call.
    claim: Cell<Option<Claim>>,
    /// JavaScript reads and writes them while no call of ours runs.
    registers: [Cell<u64>; REGISTERS],
}

type Call = fn(&Frame, sys::napi_env, sys::napi_value) -> Result<bool>;

/// `claim(bytes)`: the address is in the registers afterwards. A claim that was left open is ended
/// first.
fn claim(frame: &Frame, env: sys::napi_env, argument: sys::napi_value) -> Result<bool> {
    // SAFETY: `argument` is a value of this call.
    let bytes = size(unsafe { f64::from_napi_value(env, argument) }?)?;
    frame.settle();
    let claim = frame.arena.claim(bytes).map_err(thrown)?;
    frame.registers[ADDRESS].set(claim.address as u64);
    frame.registers[BYTES].set(claim.bytes as u64);
    frame.claim.set(Some(claim));
    Ok(true)
}

/// Ends a claim as the registers say.
fn settle(frame: &Frame, _env: sys::napi_env, _argument: sys::napi_value) -> Result<bool> {
    frame.settle();
    Ok(true)
}

/// `take(address)`: ends its views; size and handle are in the registers afterwards. What it begins
/// ends at once: the one thread that may call this backend is the one that would have to wait.
fn take(frame: &Frame, env: sys::napi_env, argument: sys::napi_value) -> Result<bool> {
    // SAFETY: `argument` is a value of this call.
    let Address(address) = unsafe { Address::from_napi_value(env, argument) }?;
    frame.settle();
    let range = match frame.arena.containing(address as usize, 1) {
        Some(allocation) if !frame.views.is_empty() => allocation.address..allocation.address + allocation.bytes,
        _ => 0..0,
    };
    frame.views.require_unmoved("free", range.clone())?;
    let Some(taken) = Arena::take(&*frame.arena, address as usize).map_err(thrown)? else {
        return Ok(false);
    };
    frame.views.end_within(range);
    let Some(Allocation { address, bytes, handle }) = taken.into_allocation() else {
        return Ok(false);
    };
    frame.registers[ADDRESS].set(address as u64);
    frame.registers[BYTES].set(bytes as u64);
    frame.registers[HANDLE].set(handle);
    Ok(true)
}

impl Frame {
    pub fn new(arena: Arc<Arena>, views: Rc<Views>) -> Rc<Self> {
        Rc::new(Frame { arena, views, claim: Cell::default(), registers: Default::default() })
    }

    /// Ends a claim as the registers say: its memory is there, or it is given up.
    pub fn settle(&self) {
        let mapped = self.registers[MAPPED].replace(0) == 1;
        match self.claim.take() {
            Some(claim) if mapped => self.arena.commit(claim, self.registers[HANDLE].get()),
            Some(claim) => self.arena.abandon(claim),
            None => {}
        }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        self.settle();
    }
}

/// Makes the object with the calls. Each of its functions and the buffer own a share of the frame.
pub fn create<'env>(env: &'env Env, frame: &Rc<Frame>) -> Result<Object<'env>> {
    let mut object = Object::new(env)?;
    add_function::<0>(env, &mut object, c"claim", frame)?;
    add_function::<1>(env, &mut object, c"settle", frame)?;
    add_function::<2>(env, &mut object, c"take", frame)?;
    let share = Rc::into_raw(Rc::clone(frame));
    let data = frame.registers.as_ptr() as *mut c_void;
    let mut buffer = ptr::null_mut();
    // SAFETY: the registers live as long as the frame, and the buffer owns a share of that.
    unsafe {
        let bytes = size_of_val(&frame.registers);
        let status = sys::napi_create_external_arraybuffer(env.raw(), data, bytes, Some(drop_share), share as *mut c_void, &mut buffer);
        if status != sys::Status::napi_ok {
            drop(Rc::from_raw(share));
        }
        check_status!(status, "the registers of an arena cannot be made")?;
        check_status!(sys::napi_set_named_property(env.raw(), object.raw(), c"registers".as_ptr(), buffer))?;
    }
    Ok(object)
}

const CALLS: [Call; 3] = [claim, settle, take];

fn add_function<const CALL: usize>(env: &Env, object: &mut Object, name: &CStr, frame: &Rc<Frame>) -> Result<()> {
    let share = Rc::into_raw(Rc::clone(frame)) as *mut c_void;
    let mut function = ptr::null_mut();
    // SAFETY: the function's data is a share of the frame, which its finalizer drops.
    unsafe {
        let length = name.to_bytes().len() as isize;
        let mut status = sys::napi_create_function(env.raw(), name.as_ptr(), length, Some(trampoline::<CALL>), share, &mut function);
        if status == sys::Status::napi_ok {
            status = sys::napi_add_finalizer(env.raw(), function, share, Some(drop_share), share, ptr::null_mut());
        }
        if status != sys::Status::napi_ok {
            drop(Rc::from_raw(share as *const Frame));
        }
        check_status!(status, "the calls of an arena cannot be made")?;
        check_status!(sys::napi_set_named_property(env.raw(), object.raw(), name.as_ptr(), function))
    }
}

unsafe extern "C" fn drop_share(_env: sys::napi_env, _data: *mut c_void, hint: *mut c_void) {
    // SAFETY: the hint is a share given away above; a finalizer runs once, on the thread of its
    // environment.
    drop(unsafe { Rc::from_raw(hint as *const Frame) });
}

unsafe extern "C" fn trampoline<const CALL: usize>(env: sys::napi_env, info: sys::napi_callback_info) -> sys::napi_value {
    let (mut count, mut argument, mut data) = (1, ptr::null_mut(), ptr::null_mut());
    // SAFETY: `env` and `info` are those of this call; the data is the share of the frame that this
    // function owns.
    let frame = unsafe {
        sys::napi_get_cb_info(env, info, &mut count, &mut argument, ptr::null_mut(), &mut data);
        &*(data as *const Frame)
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| CALLS[CALL](frame, env, argument)))
        .unwrap_or_else(|_| Err(thrown(Error::new("ERR_INTERNAL", "the native arena panicked"))));
    let mut value = ptr::null_mut();
    match outcome {
        // SAFETY: as above.
        Ok(done) => unsafe { sys::napi_get_boolean(env, done, &mut value) },
        Err(error) => {
            // SAFETY: as above.
            unsafe { JsError::from(error).throw_into(env) };
            sys::Status::napi_ok
        }
    };
    value
}
