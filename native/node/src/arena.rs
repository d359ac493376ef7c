//! Binding of `mx_core::arena`.

mod address;
mod frame;
mod native_backend;
mod pin;
mod views;

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use mx_core::arena::{Allocation, Arena, GIVING_BACK};
use mx_core::error::{Error, Result as CoreResult};
use mx_core::vmm::{MemoryKind, huge_page_bytes};
use napi::bindgen_prelude::{BigUint64Array, Object, ToNapiValue, Unknown};
use napi::{Env, Result};
use napi_derive::napi;

pub use address::Address;
pub use native_backend::NativeBackend;
pub use pin::NativePin;

use crate::background::{MEMORY, RELEASES, in_background};
use crate::external::OwnedBytes;
use crate::failure::{failure_json, thrown};
use address::size;
use frame::Frame;
use views::{Moved, Views};

/// `NativeArena` of `src/native/addon.ts`.
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

    /// The first half of a free, on the thread of the views: what gives the memory back.
    fn begin_free(&self, address: usize) -> CoreResult<Option<impl FnOnce() -> CoreResult<()> + use<>>> {
        let Some(taken) = Arena::take(self.arena(), address)? else {
            return Ok(None);
        };
        let Allocation { address, bytes, .. } = taken.allocation();
        self.views.end_within(address..address + bytes);
        let moved = self.views.within(address..address + bytes);
        let arena = self.arena();
        Ok(Some(move || {
            // Before the last view can give the memory back.
            keep_only(&arena, &moved);
            taken.give_back()
        }))
    }

    /// The first half of a close, likewise: what gives the memory back, and tells of failures.
    fn begin_close(&self) -> CoreResult<Option<impl FnOnce() -> Vec<String> + use<>>> {
        let Some(mut closing) = Arena::begin_close(self.arena())? else {
            return Ok(None);
        };
        self.views.end_within(self.whole());
        let mut moved = self.views.within(self.whole());
        // What was freed before goes with its last view, at any time.
        moved.retain(|(allocation, _)| self.arena.containing(allocation.address, 1).is_some());
        closing.take_out();
        let arena = self.arena();
        Ok(Some(move || {
            keep_only(&arena, &moved);
            closing.finish().iter().map(failure_json).collect()
        }))
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

    #[napi]
    pub fn stats(&self) -> Vec<f64> {
        let stats = self.arena.stats();
        let closed = usize::from(stats.closed);
        [stats.used_bytes, stats.mapped_bytes, stats.live_allocation_count, closed, stats.pins].map(|counter| counter as f64).to_vec()
    }

    #[napi]
    pub fn frame<'env>(&self, env: &'env Env) -> Result<Object<'env>> {
        match &self.frame {
            Some(frame) => frame::create(env, frame),
            None => Err(thrown(Error::new("ERR_INTERNAL", "this arena calls its backend itself"))),
        }
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
    pub fn free(&self, address: Address) -> Result<bool> {
        match self.begin_free(address.0 as usize).map_err(thrown)? {
            Some(finish) => finish().map(|()| true).map_err(thrown),
            None => Ok(false),
        }
    }

    #[napi]
    pub fn free_in_background<'env>(&self, env: &'env Env, address: Address) -> Result<Object<'env>> {
        let finish = self.begin_free(address.0 as usize).map_err(thrown)?;
        give_back(env, move || finish.map_or(Ok(false), |finish| finish().map(|()| true)))
    }

    #[napi]
    pub fn close(&self) -> Result<Option<Vec<String>>> {
        Ok(self.begin_close().map_err(thrown)?.map(|finish| finish()))
    }

    #[napi]
    pub fn close_in_background<'env>(&self, env: &'env Env) -> Result<Object<'env>> {
        let finish = self.begin_close().map_err(thrown)?;
        give_back(env, move || Ok(finish.map(|finish| finish())))
    }

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

    #[napi]
    pub fn end_views(&self, address: Address, length: f64) -> bool {
        let address = address.0 as usize;
        let range = address..address.saturating_add(length as usize);
        self.views.end_within(range.clone());
        !self.views.within(range).is_empty()
    }

    #[napi]
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

    #[napi]
    pub fn pin(&self, address: Address, length: f64) -> Result<NativePin> {
        self.arena.pin(address.0 as usize, size(length)?).map(NativePin::new).map_err(thrown)
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
        in_background(env, &MEMORY, move || arena.copy_to_host(address, length).map(OwnedBytes))
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

#[napi]
pub fn create_arena(backend: &NativeBackend, total_bytes: f64) -> Result<NativeArena> {
    Arena::with_backend(Box::new(backend.backend()), size(total_bytes)?).map(NativeArena::native).map_err(thrown)
}

#[napi]
pub fn create_external_arena(base: Address, total_bytes: f64, granularity: f64, host_memory: bool) -> Result<NativeArena> {
    let memory = if host_memory { MemoryKind::Host } else { MemoryKind::None };
    Arena::external(base.0 as usize, size(total_bytes)?, size(granularity)?, memory).map(NativeArena::driven).map_err(thrown)
}

/// Memory that a native thread gives back; whoever finds none meanwhile waits for it.
fn give_back<'env, T: ToNapiValue + Send + 'static>(
    env: &'env Env,
    work: impl FnOnce() -> CoreResult<T> + Send + 'static,
) -> Result<Object<'env>> {
    let underway = GIVING_BACK.begin();
    in_background(env, &RELEASES, move || {
        let outcome = work();
        drop(underway);
        outcome
    })
}
