//! Addresses without memory: what an arena itself costs shows over this.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{HUGE_PAGE_BYTES, MemoryKind, VmmBackend};
use crate::error::{Error, Result};

/// Above all that a process can map, as far as its 57 bits of addresses go on the widest machines.
const FIRST_BASE: usize = 0x10_0000_0000_0000;

/// Hands out address space that nobody has, and counts nothing. Reserves follow one another.
#[derive(Default)]
pub struct EmptyBackend {
    reserved: AtomicUsize,
}

impl VmmBackend for EmptyBackend {
    fn reserve(&self, total_bytes: usize) -> Result<usize> {
        let before = self.reserved.fetch_add(total_bytes, Ordering::Relaxed);
        before.checked_add(FIRST_BASE).filter(|base| base.checked_add(total_bytes).is_some()).ok_or_else(|| {
            let message = format!("{total_bytes} bytes of address space go past its end");
            Error::new("ERR_ARENA_RESERVE_REFUSED", message).with("length", total_bytes)
        })
    }
    fn allocate(&self, _address: usize, _bytes: usize) -> Result<u64> {
        Ok(0)
    }
    fn deallocate(&self, _address: usize, _bytes: usize, _handle: u64) -> Result<()> {
        Ok(())
    }
    fn release_reserve(&self, _base: usize, _total_bytes: usize) -> Result<()> {
        Ok(())
    }
    fn allocation_granularity(&self) -> usize {
        HUGE_PAGE_BYTES
    }
    fn memory(&self) -> MemoryKind {
        MemoryKind::None
    }
}
