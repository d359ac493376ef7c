//! Binding of `mx_core::arena`.

mod address;
mod frame;
mod native_backend;
mod pin;

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, OnceLock};

use mx_core::arena::{Allocation, Arena, Taken, View};
use mx_core::error::Error;
use mx_core::vmm::{MemoryKind, drop_pages, huge_page_bytes};
use napi::bindgen_prelude::{BigUint64Array, Object, Uint8Array, Unknown};
use napi::{Env, JsValue, Result, check_status, sys};
use napi_derive::napi;

pub use address::Address;
pub use native_backend::NativeBackend;
pub use pin::NativePin;

use crate::background::{MEMORY, in_background};
use crate::failure::{failure_json, thrown};
use address::size;

/// `NativeArena` of `src/native/addon.ts`.
#[napi]
pub struct NativeArena {
    arena: Arc<Arena>,
    /// Between `take` and `giveBack`.
    taken: Cell<Option<Taken>>,
    /// Between `beginClose` and `finishClose`.
    closing: Cell<Vec<Allocation>>,
}

impl NativeArena {
    fn new(arena: Arena) -> Self {
        NativeArena { arena: Arc::new(arena), taken: Cell::default(), closing: Cell::default() }
    }

    /// The arena itself, for work on other threads.
    pub fn arena(&self) -> Arc<Arena> {
        Arc::clone(&self.arena)
    }
}

#[napi]
impl NativeArena {
    #[napi(getter)]
    pub fn base(&self) -> Address {
        Address(self.arena.base() as u64)
    }

    #[napi(getter)]
    pub fn total_bytes(&self) -> f64 {
        self.arena.total_bytes() as f64
    }

    #[napi(getter)]
    pub fn granularity(&self) -> f64 {
        self.arena.granularity() as f64
    }

    #[napi]
    pub fn stats(&self) -> Vec<f64> {
        let stats = self.arena.stats();
        let closed = usize::from(stats.closed);
        [stats.used_bytes, stats.mapped_bytes, stats.live_allocation_count, closed, stats.pins].map(|counter| counter as f64).to_vec()
    }

    #[napi]
    pub fn frame<'env>(&self, env: &'env Env) -> Result<Object<'env>> {
        frame::create(env, self.arena())
    }

    #[napi]
    pub fn malloc(&self, bytes: f64) -> Result<Address> {
        self.arena.malloc(size(bytes)?).map(|address| Address(address as u64)).map_err(thrown)
    }

    #[napi]
    pub fn malloc_in_background<'env>(&self, env: &'env Env, bytes: f64) -> Result<Object<'env>> {
        let (arena, bytes) = (self.arena(), size(bytes)?);
        in_background(env, &MEMORY, move || arena.malloc(bytes).map(|address| Address(address as u64)))
    }

    #[napi]
    pub fn take(&self, address: Address) -> Result<bool> {
        let taken = self.arena.take(address.0 as usize).map_err(thrown)?;
        let found = taken.is_some();
        self.taken.set(taken);
        Ok(found)
    }

    #[napi]
    pub fn give_back(&self) -> Result<()> {
        match self.taken.take() {
            Some(taken) => self.arena.give_back(taken).map_err(thrown),
            None => Ok(()),
        }
    }

    #[napi]
    pub fn begin_close(&self) -> Result<Option<BigUint64Array>> {
        let Some(live) = self.arena.begin_close().map_err(thrown)? else {
            return Ok(None);
        };
        let columns = live.iter().flat_map(|a| [a.address as u64, a.bytes as u64, a.handle]).collect();
        self.closing.set(live);
        Ok(Some(BigUint64Array::new(columns)))
    }

    #[napi]
    pub fn finish_close(&self) -> Vec<String> {
        self.arena.finish_close(self.closing.take()).iter().map(failure_json).collect()
    }

    #[napi]
    pub fn allocation_of(&self, address: Address, length: f64) -> Option<Address> {
        let allocation = self.arena.containing(address.0 as usize, length as usize)?;
        Some(Address(allocation.address as u64))
    }

    #[napi]
    pub fn view<'env>(&self, env: &'env Env, address: Address, length: f64) -> Result<Unknown<'env>> {
        let (address, length) = (address.0 as usize, size(length)?);
        if !self.arena.host_memory() {
            let message = "the memory of this arena cannot be touched by the host: its backend does not say memory: \"host\"";
            return Err(thrown(Error::new("ERR_ARENA_NOT_LOADABLE", message)));
        }
        let view = self.arena.view(address, length).map_err(thrown)?;
        external_buffer(env, address as *mut c_void, length, view)
    }

    #[napi]
    pub fn pin(&self, address: Address, length: f64) -> Result<NativePin> {
        self.arena.pin(address.0 as usize, size(length)?).map(NativePin::new).map_err(thrown)
    }

    #[napi]
    pub fn drop_pages<'env>(&self, env: &'env Env, address: Address, length: f64) -> Result<Object<'env>> {
        let (address, length) = (address.0 as usize, size(length)?);
        let pin = self.arena.pin_alone(address, length).map_err(thrown)?;
        in_background(env, &MEMORY, move || {
            drop_pages(address, length);
            drop(pin);
            Ok(())
        })
    }

    #[napi]
    pub fn live(&self) -> BigUint64Array {
        BigUint64Array::new(
            self.arena.live().into_iter().flat_map(|allocation| [allocation.address as u64, allocation.bytes as u64]).collect(),
        )
    }

    #[napi]
    pub fn prove_one_region<'env>(&self, env: &'env Env, address: Address, bytes: f64) -> Result<Object<'env>> {
        let (arena, address, bytes) = (self.arena(), address.0 as usize, size(bytes)?);
        in_background(env, &MEMORY, move || arena.prove_one_region(address, bytes))
    }

    #[napi]
    pub fn copy_to_host<'env>(&self, env: &'env Env, address: Address, length: f64) -> Result<Object<'env>> {
        let (arena, address, length) = (self.arena(), address.0 as usize, size(length)?);
        in_background(env, &MEMORY, move || arena.copy_to_host(address, length).map(Uint8Array::from))
    }

    #[napi]
    pub fn free_device_bytes<'env>(&self, env: &'env Env) -> Result<Object<'env>> {
        let arena = self.arena();
        in_background(env, &MEMORY, move || arena.cuda_device().map_or(Ok(-1.0), |device| device.free_bytes().map(|bytes| bytes as f64)))
    }

    #[napi]
    pub fn huge_page_bytes(&self, address: Address, length: f64) -> f64 {
        huge_page_bytes(address.0 as usize, length as usize).map_or(-1.0, |bytes| bytes as f64)
    }
}

/// What the finalizer of an external ArrayBuffer gets.
struct Kept {
    _view: View,
    bytes: i64,
}

/// Newest Node whose engine lets its count of external memory be corrected; later ones end the process when it falls below what they know of.
const LAST_NODE_WITH_FREE_COUNT: u32 = 22;

/// Tells the engine that its heap grew by so many bytes, or shrank; does nothing where that is not safe.
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
    if !allowed {
        return;
    }
    let mut total = 0;
    // SAFETY: `total` is writable. A refusal leaves a count that only steers garbage collection.
    unsafe { sys::napi_adjust_external_memory(env, bytes, &mut total) };
}

/// An ArrayBuffer over `length` bytes at `data`, which `view` keeps until the engine is done with them.
///
/// The engine counts the bytes of every buffer as if collecting it would free them, and collects garbage in a hurry when there are many. These
/// bytes stay where they are, so they are taken out of the count as long as the buffer lives.
fn external_buffer<'env>(env: &'env Env, data: *mut c_void, length: usize, view: View) -> Result<Unknown<'env>> {
    unsafe extern "C" fn finalize(env: sys::napi_env, _data: *mut c_void, hint: *mut c_void) {
        // SAFETY: the hint is the box given away below, and a finalizer runs once.
        let kept = unsafe { Box::from_raw(hint.cast::<Kept>()) };
        adjust_external_memory(env, kept.bytes);
    }
    let bytes = length as i64;
    let hint = Box::into_raw(Box::new(Kept { _view: view, bytes }));
    adjust_external_memory(env.raw(), -bytes);
    let mut buffer = ptr::null_mut();
    // SAFETY: the memory outlives the buffer: it is detached before the bytes go, and the view keeps the addresses for one that was missed.
    unsafe {
        let status = sys::napi_create_external_arraybuffer(env.raw(), data, length, Some(finalize), hint.cast(), &mut buffer);
        if status != sys::Status::napi_ok {
            adjust_external_memory(env.raw(), bytes);
            drop(Box::from_raw(hint));
        }
        check_status!(status, "an ArrayBuffer of {} bytes cannot be made", length)?;
        Ok(Unknown::from_raw_unchecked(env.raw(), buffer))
    }
}

#[napi]
pub fn create_arena(backend: &NativeBackend, total_bytes: f64) -> Result<NativeArena> {
    Arena::with_backend(Box::new(backend.backend()), size(total_bytes)?).map(NativeArena::new).map_err(thrown)
}

#[napi]
pub fn create_external_arena(base: Address, total_bytes: f64, granularity: f64, host_memory: bool) -> Result<NativeArena> {
    let memory = if host_memory { MemoryKind::Host } else { MemoryKind::None };
    Arena::external(base.0 as usize, size(total_bytes)?, size(granularity)?, memory).map(NativeArena::new).map_err(thrown)
}

#[napi]
pub fn detach(env: &Env, buffer: Unknown) -> Result<()> {
    // SAFETY: `buffer` is a value of this call.
    let status = unsafe { sys::napi_detach_arraybuffer(env.raw(), buffer.raw()) };
    check_status!(status, "the buffer cannot be detached")
}
