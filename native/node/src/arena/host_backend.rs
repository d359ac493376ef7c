//! The host backend for JavaScript that calls it directly, or wraps it: `NativeHostBackend` of `src/native/addon.ts`.

use std::cell::RefCell;

use mx_core::error::Error;
use mx_core::vmm::{HostBackend, VmmBackend};
use napi::Result;
use napi_derive::napi;

use super::address::{Address, size};
use crate::failure::thrown;

#[napi]
#[derive(Default)]
pub struct NativeHostBackend {
    backend: HostBackend,
    /// `(base, bytes)` of what is reserved: no call touches other memory, whatever JavaScript passes. Not released when this object goes: a
    /// transfer may still write there, and only the arena over it knows.
    reserves: RefCell<Vec<(usize, usize)>>,
}

#[napi]
impl NativeHostBackend {
    #[napi(constructor)]
    pub fn new() -> Self {
        Self::default()
    }

    #[napi]
    pub fn granularity(&self) -> f64 {
        self.backend.allocation_granularity() as f64
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

impl NativeHostBackend {
    fn within_reserve(&self, address: Address, bytes: f64) -> Result<(usize, usize)> {
        let (address, bytes) = (address.0 as usize, size(bytes)?);
        let granularity = self.backend.allocation_granularity();
        let aligned = address.is_multiple_of(granularity) && bytes.is_multiple_of(granularity);
        let inside = |&(base, total): &(usize, usize)| address >= base && bytes <= total && address - base <= total - bytes;
        if aligned && self.reserves.borrow().iter().any(inside) { Ok((address, bytes)) } else { Err(outside(address, bytes)) }
    }
}

fn outside(address: usize, bytes: usize) -> napi::Error {
    let message = format!("the {bytes} bytes at {address:#x} are no aligned part of what this host backend has reserved");
    thrown(Error::new("ERR_ARENA_ADDRESS", message).with("address", format!("{address:#x}")).with("length", bytes))
}
