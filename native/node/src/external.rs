//! ArrayBuffers over memory that is not the engine's.
//!
//! The engine tells when it is done with such memory, by a finalizer. Until then the memory may be
//! in a buffer that nobody tells us of: streams of bytes and `ArrayBuffer.transfer()` move it, and
//! the first buffer looks detached. Where the thread ends meanwhile, such memory is kept for good.

mod ending;
mod fresh;

use std::any::Any;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::rc::Rc;
use std::sync::OnceLock;

use napi::bindgen_prelude::ToNapiValue;
use napi::{Result, check_status, sys};

/// Memory behind one ArrayBuffer. Belongs to the buffer's thread.
pub struct External {
    env: sys::napi_env,
    /// Weak once it is not fresh any more, so that it does not keep the buffer.
    buffer: Cell<sys::napi_ref>,
    /// Its drop gives the memory back. None once no buffer of the engine's reaches it.
    memory: Cell<Option<Box<dyn Any>>>,
    /// See `keep_if_moved`.
    kept: Cell<bool>,
    /// Bytes taken out of the engine's count.
    uncounted: i64,
}

/// What to do about the engine's count of external memory, whose growth makes it collect garbage in
/// a hurry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// Collecting the buffer frees the bytes.
    Counted,
    /// The bytes stay where they are.
    Uncounted,
}

impl External {
    /// An ArrayBuffer over `length` bytes at `data`, which dropping `memory` gives back.
    ///
    /// # Safety
    /// The bytes can be read and written until `memory` is dropped, and `env` is the environment of
    /// a call that runs.
    pub unsafe fn create<Memory: 'static>(
        env: sys::napi_env,
        data: *mut c_void,
        length: usize,
        count: Count,
        memory: Memory,
    ) -> Result<(sys::napi_value, Rc<External>)> {
        let uncounted = if count == Count::Uncounted { length as i64 } else { 0 };
        let memory: Cell<Option<Box<dyn Any>>> = Cell::new(Some(Box::new(memory)));
        let external = Rc::new(External { env, buffer: Cell::new(ptr::null_mut()), memory, kept: Cell::new(false), uncounted });
        let share = Rc::into_raw(Rc::clone(&external)) as *mut c_void;
        adjust_external_memory(env, -uncounted);
        let mut buffer = ptr::null_mut();
        // SAFETY: promised by the caller. The finalizer drops the share, and runs once.
        let status = unsafe { sys::napi_create_external_arraybuffer(env, data, length, Some(finalize), share, &mut buffer) };
        if status != sys::Status::napi_ok {
            adjust_external_memory(env, uncounted);
            // SAFETY: nobody else has got the share.
            drop(unsafe { Rc::from_raw(share as *const External) });
        }
        check_status!(status, "an ArrayBuffer of {} bytes cannot be made", length)?;
        let mut reference = ptr::null_mut();
        // SAFETY: `buffer` is a value of this call.
        let status = unsafe { sys::napi_create_reference(env, buffer, 1, &mut reference) };
        check_status!(status, "an ArrayBuffer of {} bytes cannot be made", length)?;
        external.buffer.set(reference);
        if ending::watch(env, Rc::as_ptr(&external)) {
            fresh::keep(Rc::clone(&external));
        }
        Ok((buffer, external))
    }

    /// Lets the engine collect the buffer.
    fn let_go(&self) {
        let reference = self.buffer.get();
        if !reference.is_null() {
            // SAFETY: on the thread of the environment, which lives as long as the finalizer has
            // not run; its count is 1 until now.
            unsafe { sys::napi_reference_unref(self.env, reference, &mut 0) };
        }
    }

    /// True where the memory is in a buffer that we do not know, or the engine has not told yet
    /// that it is done with it.
    pub fn moved(&self) -> bool {
        self.in_scope(|buffer| buffer.is_none())
    }

    /// Detaches the buffer and gives the memory back, unless the memory is not in the buffer any
    /// more.
    pub fn detach(&self) {
        let detached = self.in_scope(|buffer| {
            // SAFETY: a value of the scope around.
            buffer.is_some_and(|buffer| unsafe { sys::napi_detach_arraybuffer(self.env, buffer) } == sys::Status::napi_ok)
        });
        if detached {
            drop(self.memory.take());
        }
    }

    /// Keeps memory for good that was moved: another thread may read it for ever after.
    fn keep_if_moved(&self) {
        if self.moved() {
            std::mem::forget(self.memory.take());
            self.kept.set(true);
        }
    }

    /// True once the memory is kept for good.
    pub fn kept(&self) -> bool {
        self.kept.get()
    }

    /// Calls `work` with the buffer, where the memory is in it.
    fn in_scope<T>(&self, work: impl FnOnce(Option<sys::napi_value>) -> T) -> T {
        let (mut scope, mut buffer, mut detached) = (ptr::null_mut(), ptr::null_mut(), false);
        // SAFETY: on the thread of the environment, which lives as long as the finalizer has not
        // run; the scope is closed below.
        unsafe {
            sys::napi_open_handle_scope(self.env, &mut scope);
            let reference = self.buffer.get();
            let found = !reference.is_null()
                && sys::napi_get_reference_value(self.env, reference, &mut buffer) == sys::Status::napi_ok
                && !buffer.is_null()
                && sys::napi_is_detached_arraybuffer(self.env, buffer, &mut detached) == sys::Status::napi_ok
                && !detached;
            let outcome = work(found.then_some(buffer));
            sys::napi_close_handle_scope(self.env, scope);
            outcome
        }
    }
}

/// The engine is done with the memory, or the environment ends.
unsafe extern "C" fn finalize(env: sys::napi_env, _data: *mut c_void, share: *mut c_void) {
    // SAFETY: the share given away in `create`; a finalizer runs once, on the thread of its
    // environment.
    let external = unsafe { Rc::from_raw(share as *const External) };
    ending::unwatch(Rc::as_ptr(&external));
    // SAFETY: ours, and of this environment.
    unsafe {
        let reference = external.buffer.replace(ptr::null_mut());
        if !reference.is_null() {
            sys::napi_delete_reference(env, reference);
        }
    }
    adjust_external_memory(env, external.uncounted);
    drop(external.memory.take());
}

/// Newest Node whose engine lets its count of external memory be corrected; later ones end the
/// process when it falls below what they know of.
const LAST_NODE_WITH_FREE_COUNT: u32 = 22;

/// Tells the engine that its heap grew by so many bytes, or shrank; does nothing where that is not
/// safe.
fn adjust_external_memory(env: sys::napi_env, bytes: i64) {
    static ALLOWED: OnceLock<bool> = OnceLock::new();
    let allowed = *ALLOWED.get_or_init(|| {
        let mut version = ptr::null();
        // SAFETY: on success the pointer leads to a static struct of the engine's.
        unsafe {
            let status = sys::napi_get_node_version(env, &mut version);
            status == sys::Status::napi_ok && version.as_ref().is_some_and(|version| version.major <= LAST_NODE_WITH_FREE_COUNT)
        }
    });
    if !allowed || bytes == 0 {
        return;
    }
    let mut total = 0;
    // SAFETY: `total` is writable. A refusal leaves a count that only steers garbage collection.
    unsafe { sys::napi_adjust_external_memory(env, bytes, &mut total) };
}

/// Bytes for JavaScript, as a Uint8Array over them: `Bytes` of `src/native/hand-typed.ts`.
pub struct Bytes(pub Vec<u8>);

impl ToNapiValue for Bytes {
    unsafe fn to_napi_value(env: sys::napi_env, Bytes(mut bytes): Self) -> Result<sys::napi_value> {
        let (data, length) = (bytes.as_mut_ptr().cast(), bytes.len());
        // SAFETY: the vector owns the bytes, and moving it does not move them.
        let (buffer, _) = unsafe { External::create(env, data, length, Count::Counted, bytes) }?;
        let mut array = ptr::null_mut();
        // SAFETY: `buffer` is a value of this call, of `length` bytes.
        let status = unsafe { sys::napi_create_typedarray(env, sys::TypedarrayType::uint8_array, length, buffer, 0, &mut array) };
        check_status!(status, "a Uint8Array of {} bytes cannot be made", length)?;
        Ok(array)
    }
}
