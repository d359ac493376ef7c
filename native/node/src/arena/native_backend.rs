//! Native backends for JavaScript that makes arenas over them, calls them directly, or wraps them.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use mx_core::cuda::CudaDevice;
use mx_core::error::{Error, Result as CoreResult};
use mx_core::vmm::{EmptyBackend, HostBackend, KeepLimits, KeepingBackend, PAGES, VmmBackend};
use napi::bindgen_prelude::PromiseRaw;
use napi::{Env, Result};
use napi_derive::napi;

use super::address::{Address, size};
use crate::background::{MEMORY, in_background};
use crate::failure::thrown;

/// Memory for arenas: natively by `createArena`, or driven by JavaScript, which may only name
/// ranges that this object has reserved.
#[napi]
pub struct NativeBackend {
    backend: Arc<dyn VmmBackend>,
    /// `(base, bytes)` of what is reserved: no call touches other memory, whatever JavaScript
    /// passes. Not released when this object goes: a transfer may still write there, and only the
    /// arena over it knows.
    reserves: RefCell<Vec<(usize, usize)>>,
    keeping: Option<Arc<KeepingBackend>>,
}

#[napi]
pub fn open_host_backend() -> NativeBackend {
    NativeBackend::new(Arc::new(HostBackend::new()))
}

/// Host memory of one arena that takes kept pages first, and may keep its own: `maxBytes` in all,
/// `idleMs` until they are given back.
#[napi]
pub fn open_keeping_backend(max_bytes: f64, idle_ms: f64) -> NativeBackend {
    let limits = KeepLimits { max_bytes: max_bytes as usize, idle: Duration::from_millis(idle_ms as u64) };
    let keeping = Arc::new(KeepingBackend::new(&PAGES, limits));
    let backend: Arc<dyn VmmBackend> = keeping.clone();
    NativeBackend { keeping: Some(keeping), ..NativeBackend::new(backend) }
}

/// Kept by the process now.
#[napi]
pub fn kept_page_bytes() -> f64 {
    PAGES.bytes() as f64
}

/// Gives so many bytes back at least, the oldest first, where there are as many; resolves to how
/// many.
#[napi]
pub fn release_kept_pages(env: &Env, bytes: f64) -> Result<PromiseRaw<'_, f64>> {
    // What is infinite or too large is all of it.
    let bytes = bytes as usize;
    in_background(env, &MEMORY, move || Ok(PAGES.release(bytes) as f64))
}

/// Addresses without memory, for measuring what an arena itself costs.
#[napi]
pub fn open_empty_backend() -> NativeBackend {
    NativeBackend::new(Arc::new(EmptyBackend::default()))
}

#[napi]
impl NativeBackend {
    #[napi]
    pub fn granularity(&self) -> f64 {
        self.backend.allocation_granularity() as f64
    }

    /// Of `openKeepingBackend`: what is given back from now on is kept. All of it must be filled.
    #[napi]
    pub fn keep_pages(&self) {
        if let Some(keeping) = &self.keeping {
            keeping.keep();
        }
    }

    /// Bytes of kept pages that its allocations took.
    #[napi]
    pub fn taken_page_bytes(&self) -> f64 {
        self.keeping.as_ref().map_or(0.0, |keeping| keeping.taken_bytes() as f64)
    }

    /// Memory of the CUDA device that nobody has now; null where the memory is none of CUDA's.
    /// ERR_CUDA_NO_CONTEXT, ERR_CUDA_CALL.
    #[napi]
    pub fn free_device_bytes<'env>(&self, env: &'env Env) -> Result<PromiseRaw<'env, Option<f64>>> {
        let backend = self.backend();
        in_background(env, &MEMORY, move || free_bytes(backend.cuda_device()))
    }

    #[napi]
    pub fn reserve(&self, total_bytes: f64) -> Result<Address> {
        let Some(bytes) = size(total_bytes)?.checked_next_multiple_of(self.backend.allocation_granularity()) else {
            return Err(outside(0, usize::MAX));
        };
        let base = self.backend.reserve(bytes).map_err(thrown)?;
        self.reserves.borrow_mut().push((base, bytes));
        Ok(Address(base as u64))
    }

    #[napi]
    pub fn allocate(&self, address: Address, bytes: f64) -> Result<Address> {
        let (address, bytes) = self.within_reserve(address, bytes)?;
        self.backend.allocate(address, bytes).map(Address).map_err(thrown)
    }

    #[napi]
    pub fn deallocate(&self, address: Address, bytes: f64, handle: Address) -> Result<()> {
        let (address, bytes) = self.within_reserve(address, bytes)?;
        self.backend.deallocate(address, bytes, handle.0).map_err(thrown)
    }

    #[napi]
    pub fn release_reserve(&self, base: Address, total_bytes: f64) -> Result<()> {
        let Some(bytes) = size(total_bytes)?.checked_next_multiple_of(self.backend.allocation_granularity()) else {
            return Err(outside(base.0 as usize, usize::MAX));
        };
        let base = base.0 as usize;
        let mut reserves = self.reserves.borrow_mut();
        let Some(at) = reserves.iter().position(|reserve| *reserve == (base, bytes)) else {
            return Err(outside(base, bytes));
        };
        reserves.swap_remove(at);
        self.backend.release_reserve(base, bytes).map_err(thrown)
    }
}

impl NativeBackend {
    pub fn new(backend: Arc<dyn VmmBackend>) -> Self {
        NativeBackend { backend, reserves: RefCell::default(), keeping: None }
    }

    /// The backend itself, for arenas that call it without JavaScript.
    pub fn backend(&self) -> Arc<dyn VmmBackend> {
        Arc::clone(&self.backend)
    }

    fn within_reserve(&self, address: Address, bytes: f64) -> Result<(usize, usize)> {
        let (address, bytes) = (address.0 as usize, size(bytes)?);
        let granularity = self.backend.allocation_granularity();
        let aligned = address.is_multiple_of(granularity) && bytes.is_multiple_of(granularity);
        let inside = |&(base, total): &(usize, usize)| address >= base && bytes <= total && address - base <= total - bytes;
        if aligned && self.reserves.borrow().iter().any(inside) { Ok((address, bytes)) } else { Err(outside(address, bytes)) }
    }
}

pub fn free_bytes(device: Option<&CudaDevice>) -> CoreResult<Option<f64>> {
    device.map(|device| device.free_bytes().map(|bytes| bytes as f64)).transpose()
}

fn outside(address: usize, bytes: usize) -> napi::Error {
    let message = format!("the {bytes} bytes at {address:#x} are no aligned part of what this backend object has reserved");
    thrown(Error::new("ERR_ARENA_ADDRESS", message).with("address", format!("{address:#x}")).with("length", bytes))
}
