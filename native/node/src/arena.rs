//! Binding of `mx_core::arena`.

mod address;
mod frame;
mod native_backend;
mod pin;
mod views;

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use mx_core::arena::{Allocation, Arena, GIVING_BACK, Holes, Living, RELEASES};
use mx_core::error::{Error, Result as CoreResult};
use mx_core::vmm::{MemoryKind, huge_page_bytes};
use napi::bindgen_prelude::{BigUint64Array, Either, Object, PromiseRaw, ToNapiValue, Unknown};
use napi::{Env, Result};
use napi_derive::napi;

pub use address::Address;
pub use native_backend::NativeBackend;
pub use pin::NativePin;

use crate::background::{MEMORY, in_background};
use crate::external::Bytes;
use crate::failure::{failure_json, thrown};
use address::size;
use frame::Frame;
use native_backend::free_bytes;
use views::{Moved, Views};

/// What is alive in an arena at one moment.
#[napi(object, object_from_js = false)]
pub struct NativeLiving {
    /// `[address, bytes, ...]`, in the order of addresses.
    pub allocations: BigUint64Array,
    /// Between them: nothing for ever; perhaps memory that is allocated or given back just now;
    /// perhaps memory that was freed and is still pinned or seen.
    #[napi(ts_type = "'empty' | 'moving' | 'held'")]
    pub holes: &'static str,
}

/// The arena's hot path and its life cycle.
#[napi]
pub struct NativeArena {
    arena: Arc<Arena>,
    views: Rc<Views>,
    /// Of an arena whose backend JavaScript drives.
    frame: Option<Rc<Frame>>,
}

impl NativeArena {
    fn native(arena: Arena) -> Self {
        NativeArena { arena: Arc::new(arena), views: Rc::default(), frame: None }
    }

    fn driven(arena: Arena) -> Self {
        let (arena, views) = (Arc::new(arena), Rc::default());
        let frame = Frame::new(Arc::clone(&arena), Rc::clone(&views));
        NativeArena { arena, views, frame: Some(frame) }
    }

    /// The arena itself, for work on other threads.
    pub fn arena(&self) -> Arc<Arena> {
        Arc::clone(&self.arena)
    }

    fn whole(&self) -> Range<usize> {
        self.arena.base()..self.arena.base() + self.arena.total_bytes()
    }

    /// Gives everything back but what was moved: the thread of the views ends, and can tell nobody
    /// of failures.
    fn leave_what_was_moved(&self) {
        let Ok(Some(mut closing)) = Arena::begin_close(self.arena()) else { return };
        let moved = self.views.kept();
        closing.take_out();
        let arena = self.arena();
        // Where no thread can be had, dropping it does it here.
        let _ = RELEASES.run(move || {
            keep_only(&arena, &moved);
            drop(closing);
        });
    }
}

impl Drop for NativeArena {
    fn drop(&mut self) {
        if self.frame.is_none() && self.views.any_kept() {
            self.leave_what_was_moved();
        }
    }
}

/// Gives back what no moved view covers.
fn keep_only(arena: &Arena, moved: &Moved) {
    for (Allocation { address, bytes, .. }, views) in moved {
        arena.drop_all_but(*address, *bytes, views);
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

    /// Everything ever handed out, in bytes, holes included.
    #[napi(getter)]
    pub fn used_bytes(&self) -> f64 {
        self.arena.stats().used_bytes as f64
    }

    /// Bytes of the allocations alive.
    #[napi(getter)]
    pub fn mapped_bytes(&self) -> f64 {
        self.arena.stats().mapped_bytes as f64
    }

    #[napi(getter)]
    pub fn live_allocation_count(&self) -> f64 {
        self.arena.stats().live_allocation_count as f64
    }

    #[napi(getter)]
    pub fn closed(&self) -> bool {
        self.arena.stats().closed
    }

    /// The calls that frame a backend written in JavaScript; makes new functions at each call.
    #[napi(ts_return_type = "ArenaFrame")]
    pub fn frame<'env>(&self, env: &'env Env) -> Result<Object<'env>> {
        match &self.frame {
            Some(frame) => frame::create(env, frame),
            None => Err(thrown(Error::new("ERR_INTERNAL", "this arena calls its backend itself"))),
        }
    }

    /// Native backends only: claims, maps, records. Returns the address.
    #[napi]
    pub fn malloc(&self, bytes: f64) -> Result<Address> {
        self.arena.malloc(size(bytes)?).map(|address| Address(address as u64)).map_err(thrown)
    }

    /// The same on a native thread.
    #[napi]
    pub fn malloc_in_background<'env>(&self, env: &'env Env, bytes: f64) -> Result<PromiseRaw<'env, Address>> {
        let (arena, bytes) = (self.arena(), size(bytes)?);
        in_background(env, &MEMORY, move || arena.malloc(bytes).map(|address| Address(address as u64)))
    }

    /// Native backends only: detaches the views of the allocation that starts at `address` and
    /// gives its memory back; nothing where there is none. A promise where that takes time, on a
    /// native thread. Memory that JavaScript has moved out of a view stays until it is collected.
    /// ERR_ARENA_BUSY while a transfer pins it, and then nothing is changed.
    #[napi]
    pub fn free<'env>(&self, env: &'env Env, address: Address) -> Result<Option<PromiseRaw<'env, ()>>> {
        let Some(taken) = Arena::take(self.arena(), address.0 as usize).map_err(thrown)? else {
            return Ok(None);
        };
        let Allocation { address, bytes, .. } = taken.allocation();
        self.views.end_within(address..address + bytes);
        let moved = self.views.within(address..address + bytes);
        let takes_time = taken.takes_time();
        let arena = self.arena();
        let finish = move || {
            // Before the last view can give the memory back.
            keep_only(&arena, &moved);
            taken.give_back()
        };
        if takes_time { give_back(env, finish).map(Some) } else { finish().map(|()| None).map_err(thrown) }
    }

    /// Native backends only: refuses new work, detaches all views, gives memory and reserve back,
    /// likewise. The failures as JSON, in order; null when closed before. ERR_ARENA_BUSY while
    /// anything is pinned or allocated; the arena then stays open.
    #[napi]
    #[allow(clippy::type_complexity, reason = "the declaration for TypeScript is made from the type as it stands")]
    pub fn close<'env>(&self, env: &'env Env) -> Result<Option<Either<Vec<String>, PromiseRaw<'env, Vec<String>>>>> {
        let Some(mut closing) = Arena::begin_close(self.arena()).map_err(thrown)? else {
            return Ok(None);
        };
        self.views.end_within(self.whole());
        let mut moved = self.views.within(self.whole());
        // What was freed before goes with its last view, at any time.
        moved.retain(|(allocation, _)| self.arena.containing(allocation.address, 1).is_some());
        closing.take_out();
        let takes_time = closing.takes_time();
        let arena = self.arena();
        let finish = move || {
            keep_only(&arena, &moved);
            closing.finish().iter().map(failure_json).collect::<Vec<_>>()
        };
        Ok(Some(if takes_time { Either::B(give_back(env, move || Ok(finish()))?) } else { Either::A(finish()) }))
    }

    /// For a backend written in JavaScript: refuses new work and detaches all views.
    /// `[address, bytes, handle, ...]` of what is to be given back; null when closed before.
    /// ERR_ARENA_BUSY also where JavaScript has moved memory out of a view.
    #[napi]
    pub fn close_records(&self) -> Result<Option<BigUint64Array>> {
        if let Some(frame) = &self.frame {
            frame.settle();
        }
        self.views.require_unmoved("close", self.whole())?;
        let Some(closing) = Arena::begin_close(&*self.arena).map_err(thrown)? else {
            return Ok(None);
        };
        self.views.end_within(self.whole());
        let live = closing.into_allocations();
        Ok(Some(BigUint64Array::new(live.iter().flat_map(|a| [a.address as u64, a.bytes as u64, a.handle]).collect())))
    }

    /// Detaches the views that begin in `[address, address + length)`. True where JavaScript has
    /// moved memory out of one of them, or has collected it just now, so that the bytes may still
    /// be read.
    #[napi]
    pub fn end_views(&self, address: Address, length: f64) -> bool {
        let address = address.0 as usize;
        let range = address..address.saturating_add(length as usize);
        self.views.end_within(range.clone());
        !self.views.within(range).is_empty()
    }

    /// An ArrayBuffer over live memory, without copy, of at least one byte. Host memory only.
    #[napi(ts_return_type = "ArrayBuffer")]
    pub fn view<'env>(&self, env: &'env Env, address: Address, length: f64) -> Result<Unknown<'env>> {
        let (address, length) = (address.0 as usize, size(length)?);
        if !self.arena.host_memory() {
            let message = "the memory of this arena cannot be touched by the host: its backend does not say memory: \"host\"";
            return Err(thrown(Error::new("ERR_ARENA_NOT_LOADABLE", message)));
        }
        let view = self.arena.view(address, length).map_err(thrown)?;
        let buffer = self.views.create(env.raw(), address, length, view)?;
        // SAFETY: a value of this call.
        Ok(unsafe { Unknown::from_raw_unchecked(env.raw(), buffer) })
    }

    /// Keeps the live allocation that holds the whole of `[address, address + length)`, at least a
    /// byte, until it is released: freeing it and closing are ERR_ARENA_BUSY. ERR_ARENA_ADDRESS,
    /// ERR_ARENA_CLOSED.
    #[napi]
    pub fn pin(&self, address: Address, length: f64) -> Result<NativePin> {
        self.arena.pin(address.0 as usize, size(length)?).map(NativePin::new).map_err(thrown)
    }

    /// What is alive now, and what lies between.
    #[napi]
    pub fn living(&self) -> NativeLiving {
        let Living { allocations, holes } = self.arena.living();
        let columns = allocations.iter().flat_map(|Allocation { address, bytes, .. }| [*address as u64, *bytes as u64]).collect();
        let holes = match holes {
            Holes::Empty => "empty",
            Holes::Moving => "moving",
            Holes::Held => "held",
        };
        NativeLiving { allocations: BigUint64Array::new(columns), holes }
    }

    /// Native backends only, on a native thread: rejects where the mapped range, in whole pages,
    /// cannot be given to a network card as one region; any of the host can. ERR_CUDA_REGION.
    #[napi]
    pub fn prove_one_region<'env>(&self, env: &'env Env, address: Address, bytes: f64) -> Result<PromiseRaw<'env, ()>> {
        let (arena, address, bytes) = (self.arena(), address.0 as usize, size(bytes)?);
        in_background(env, &MEMORY, move || arena.prove_one_region(address, bytes))
    }

    /// A copy of device memory, made on a native thread; the memory is pinned meanwhile.
    #[napi]
    pub fn copy_to_host<'env>(&self, env: &'env Env, address: Address, length: f64) -> Result<PromiseRaw<'env, Bytes>> {
        let (arena, address, length) = (self.arena(), address.0 as usize, size(length)?);
        in_background(env, &MEMORY, move || arena.copy_to_host(address, length).map(Bytes))
    }

    /// As `NativeBackend.freeDeviceBytes`.
    #[napi]
    pub fn free_device_bytes<'env>(&self, env: &'env Env) -> Result<PromiseRaw<'env, Option<f64>>> {
        let arena = self.arena();
        in_background(env, &MEMORY, move || free_bytes(arena.cuda_device()))
    }

    /// Bytes in huge pages now within `[address, address + length)`; null where the kernel does not
    /// say.
    #[napi]
    pub fn huge_page_bytes(&self, address: Address, length: f64) -> Option<f64> {
        huge_page_bytes(address.0 as usize, length as usize).map(|bytes| bytes as f64)
    }
}

/// An arena over a native backend, whose error when the address space cannot be had comes through.
#[napi]
pub fn create_arena(backend: &NativeBackend, total_bytes: f64) -> Result<NativeArena> {
    Arena::with_backend(Box::new(backend.backend()), size(total_bytes)?).map(NativeArena::native).map_err(thrown)
}

/// An arena over `[base, base + totalBytes)` of a backend that JavaScript drives. `hostMemory`: the
/// bytes can be touched by this process.
#[napi]
pub fn create_external_arena(base: Address, total_bytes: f64, granularity: f64, host_memory: bool) -> Result<NativeArena> {
    let memory = if host_memory { MemoryKind::Host } else { MemoryKind::None };
    Arena::external(base.0 as usize, size(total_bytes)?, size(granularity)?, memory).map(NativeArena::driven).map_err(thrown)
}

/// Memory that a native thread gives back; whoever finds none meanwhile waits for it.
fn give_back<'env, T: ToNapiValue + Send + 'static>(
    env: &'env Env,
    work: impl FnOnce() -> CoreResult<T> + Send + 'static,
) -> Result<PromiseRaw<'env, T>> {
    let underway = GIVING_BACK.begin();
    in_background(env, &RELEASES, move || {
        let outcome = work();
        drop(underway);
        outcome
    })
}
