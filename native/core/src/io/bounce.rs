//! An aligned buffer for direct reads whose target is not aligned as the device wants.

use super::layout::Block;
use super::layout::Layout as TransferLayout;
use crate::error::{Error, Result};
use crate::sys::page_bytes;
use crate::vmm::{HostBackend, VmmBackend};

/// A mapping of its own: no allocator ever gets pages back that child processes do not inherit.
pub struct Bounce {
    address: usize,
    bytes: usize,
}

impl Bounce {
    /// A buffer of `bytes` in huge pages, so that the device sees few pieces.
    /// ERR_ARENA_OUT_OF_MEMORY where there is none.
    pub fn new(bytes: usize) -> Result<Self> {
        let bytes = bytes.max(1).next_multiple_of(page_bytes());
        let backend = HostBackend::new();
        let refused = |error: Error| Error { code: "ERR_ARENA_OUT_OF_MEMORY", ..error };
        let bounce = Bounce { address: backend.reserve(bytes).map_err(refused)?, bytes };
        backend.allocate(bounce.address, bytes)?;
        Ok(bounce)
    }

    pub fn address(&self) -> usize {
        self.address
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies the block, which lies at the start of the buffer, to where its pieces want it.
    ///
    /// # Safety
    /// The block's bytes are in the buffer, and its pieces' memory is writable and not in use
    /// elsewhere.
    pub unsafe fn scatter(&self, layout: &TransferLayout, block: &Block) {
        let mut vectors = Vec::new();
        layout.vectors(block, block.offset, &mut vectors);
        let mut from = 0;
        for vector in &vectors {
            debug_assert!(from + vector.iov_len <= self.bytes);
            // SAFETY: promised by the caller; buffer and target are distinct memory.
            unsafe { std::ptr::copy_nonoverlapping((self.address as *const u8).add(from), vector.iov_base.cast(), vector.iov_len) };
            from += vector.iov_len;
        }
    }
}

impl Drop for Bounce {
    fn drop(&mut self) {
        // A refusal leaves address space behind, and there is nobody to tell.
        let _ = HostBackend::new().release_reserve(self.address, self.bytes);
    }
}
