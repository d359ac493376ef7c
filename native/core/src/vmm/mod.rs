//! Backends that own memory: address space is reserved once, physical memory is mapped into it and
//! given back piece by piece.

mod empty;
mod host;
mod huge_pages;
mod keeping;
mod kept;

pub use empty::EmptyBackend;
pub use host::{HUGE_PAGE_BYTES, HostBackend, drop_pages, keep_from_forks};
pub use huge_pages::huge_page_bytes;
pub use keeping::KeepingBackend;
pub use kept::{KeepLimits, PAGES, PageStore};

use std::sync::Arc;

use crate::cuda::CudaDevice;
use crate::error::{Error, Result};

/// What kind of memory lies behind the addresses of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// This process can read and write it.
    Host,
    /// It belongs to a device.
    Device,
    /// There is none: the addresses only count.
    None,
}

/// Maps memory into one reserved range. An arena calls it from whatever thread called the arena,
/// from several at once, and never twice at a time for one address.
pub trait VmmBackend: Send + Sync {
    /// Sets `total_bytes` (a multiple of the granularity) of address space aside and returns its
    /// base; no memory yet.
    fn reserve(&self, total_bytes: usize) -> Result<usize>;
    /// Maps memory at `[address, address + bytes)`, a part of the reserve without memory, both
    /// multiples of the granularity away from the base. Returns the handle that `deallocate` gets
    /// back. A failure leaves the part as it was.
    fn allocate(&self, address: usize, bytes: usize) -> Result<u64>;
    /// As `allocate`, for an owner who will use the first `wanted_bytes` alone.
    fn allocate_for(&self, address: usize, bytes: usize, _wanted_bytes: usize) -> Result<u64> {
        self.allocate(address, bytes)
    }
    /// Gives the memory of one `allocate` back; its addresses stay reserved.
    fn deallocate(&self, address: usize, bytes: usize, handle: u64) -> Result<()>;
    /// Gives back what memory it can of a part of an allocation that nobody uses any more; the rest
    /// goes with the allocation.
    fn drop_pages(&self, _address: usize, _bytes: usize) {}
    /// Gives the address space back, after everything in it was deallocated.
    fn release_reserve(&self, base: usize, total_bytes: usize) -> Result<()>;
    /// What sizes are rounded up to: a power of two in bytes.
    fn allocation_granularity(&self) -> usize;
    fn memory(&self) -> MemoryKind;
    /// Fails where `[address, address + bytes)`, mapped and in whole pages, cannot be given to a
    /// network card as one region.
    fn prove_one_region(&self, _address: usize, _bytes: usize) -> Result<()> {
        Ok(())
    }
    /// Copies device memory, which the caller holds, into memory of this process. Blocks.
    fn copy_to_host(&self, _address: usize, into: &mut [u8]) -> Result<()> {
        let message = format!("the memory of this backend cannot be copied to the host ({} bytes)", into.len());
        Err(Error::new("ERR_ARENA_NOT_LOADABLE", message))
    }
    /// The device whose memory it is, where it is CUDA's.
    fn cuda_device(&self) -> Option<&CudaDevice> {
        None
    }
}

/// One backend under several arenas.
impl<Backend: VmmBackend + ?Sized> VmmBackend for Arc<Backend> {
    fn reserve(&self, total_bytes: usize) -> Result<usize> {
        (**self).reserve(total_bytes)
    }
    fn allocate(&self, address: usize, bytes: usize) -> Result<u64> {
        (**self).allocate(address, bytes)
    }
    fn allocate_for(&self, address: usize, bytes: usize, wanted_bytes: usize) -> Result<u64> {
        (**self).allocate_for(address, bytes, wanted_bytes)
    }
    fn deallocate(&self, address: usize, bytes: usize, handle: u64) -> Result<()> {
        (**self).deallocate(address, bytes, handle)
    }
    fn drop_pages(&self, address: usize, bytes: usize) {
        (**self).drop_pages(address, bytes);
    }
    fn release_reserve(&self, base: usize, total_bytes: usize) -> Result<()> {
        (**self).release_reserve(base, total_bytes)
    }
    fn allocation_granularity(&self) -> usize {
        (**self).allocation_granularity()
    }
    fn memory(&self) -> MemoryKind {
        (**self).memory()
    }
    fn prove_one_region(&self, address: usize, bytes: usize) -> Result<()> {
        (**self).prove_one_region(address, bytes)
    }
    fn copy_to_host(&self, address: usize, into: &mut [u8]) -> Result<()> {
        (**self).copy_to_host(address, into)
    }
    fn cuda_device(&self) -> Option<&CudaDevice> {
        (**self).cuda_device()
    }
}
