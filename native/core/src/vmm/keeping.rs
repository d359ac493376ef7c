//! Host memory whose pages may come from, and go to, the process's store of kept pages.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::host::{HUGE_PAGE_BYTES, HostBackend};
use super::kept::{KeepLimits, PageStore, Piece};
use super::{MemoryKind, VmmBackend};
use crate::error::Result;

/// As [`HostBackend`], for one arena. Its allocations take kept pages first; what it gives back is
/// kept once `keep` was called, which says that all of it is filled: addresses without memory must
/// not count as pages. No file may be mapped over it.
pub struct KeepingBackend {
    inner: HostBackend,
    store: &'static PageStore,
    limits: KeepLimits,
    keeps: AtomicBool,
    taken_bytes: AtomicUsize,
    /// Mappings that hold the whole huge pages of each allocation, by its address.
    pieces: Mutex<HashMap<usize, Vec<Piece>>>,
}

impl KeepingBackend {
    pub fn new(store: &'static PageStore, limits: KeepLimits) -> Self {
        let (keeps, taken_bytes) = (AtomicBool::new(false), AtomicUsize::new(0));
        KeepingBackend { inner: HostBackend::new(), store, limits, keeps, taken_bytes, pieces: Mutex::default() }
    }

    pub fn keep(&self) {
        self.keeps.store(true, Ordering::Release);
    }

    /// Bytes of kept pages in its allocations, those given back included.
    pub fn taken_bytes(&self) -> usize {
        self.taken_bytes.load(Ordering::Acquire)
    }

    fn give_up(&self, address: usize) {
        let pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner).remove(&address).unwrap_or_default();
        if self.keeps.load(Ordering::Acquire) {
            for (at, bytes) in pieces {
                self.store.put(at, bytes, self.limits);
            }
        }
    }
}

impl VmmBackend for KeepingBackend {
    fn reserve(&self, total_bytes: usize) -> Result<usize> {
        self.inner.reserve(total_bytes)
    }

    fn allocate(&self, address: usize, bytes: usize) -> Result<u64> {
        self.allocate_for(address, bytes, bytes)
    }

    fn allocate_for(&self, address: usize, bytes: usize, wanted_bytes: usize) -> Result<u64> {
        let whole_bytes = wanted_bytes - wanted_bytes % HUGE_PAGE_BYTES;
        let mut pieces = self.store.take(address, whole_bytes);
        let taken: usize = pieces.iter().map(|(_, length)| length).sum();
        if taken < bytes
            && let Err(error) = self.inner.allocate_for(address + taken, bytes - taken, wanted_bytes - taken)
        {
            if taken > 0 {
                self.inner.deallocate(address, taken, 0)?;
            }
            return Err(error);
        }
        if taken < whole_bytes {
            pieces.push((address + taken, whole_bytes - taken));
        }
        self.taken_bytes.fetch_add(taken, Ordering::AcqRel);
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner).insert(address, pieces);
        Ok(0)
    }

    fn deallocate(&self, address: usize, bytes: usize, handle: u64) -> Result<()> {
        self.give_up(address);
        self.inner.deallocate(address, bytes, handle)
    }

    fn drop_pages(&self, address: usize, bytes: usize) {
        // A piece with holes is not kept.
        let untouched = |&(at, length): &Piece| at + length <= address || at >= address + bytes;
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner).values_mut().for_each(|pieces| pieces.retain(untouched));
        self.inner.drop_pages(address, bytes);
    }

    fn release_reserve(&self, base: usize, total_bytes: usize) -> Result<()> {
        self.inner.release_reserve(base, total_bytes)
    }

    fn allocation_granularity(&self) -> usize {
        self.inner.allocation_granularity()
    }

    fn memory(&self) -> MemoryKind {
        MemoryKind::Host
    }
}
