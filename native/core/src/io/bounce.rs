//! An aligned buffer for direct reads whose target is not aligned as the device wants.

use std::alloc::{Layout, alloc, dealloc};

use super::layout::Block;
use super::layout::Layout as TransferLayout;
use crate::error::{Error, Result};

pub struct Bounce {
    memory: *mut u8,
    layout: Layout,
}

// SAFETY: the buffer is owned, and nothing else points into it.
unsafe impl Send for Bounce {}

impl Bounce {
    /// A buffer of `bytes`, aligned to a huge page so that the device sees few segments.
    /// ERR_ARENA_OUT_OF_MEMORY where there is none.
    pub fn new(bytes: usize) -> Result<Self> {
        let align = if bytes >= 2 << 20 { 2 << 20 } else { 4096 };
        let layout = Layout::from_size_align(bytes.max(1), align).unwrap_or(Layout::new::<[u8; 4096]>());
        // SAFETY: the layout has a size above zero.
        let memory = unsafe { alloc(layout) };
        if memory.is_null() {
            return Err(Error::new(
                "ERR_ARENA_OUT_OF_MEMORY",
                format!("no {bytes} bytes for a buffer of direct reads: free memory, or load less"),
            )
            .with("length", bytes));
        }
        if bytes >= 2 << 20 {
            // SAFETY: advice about a range that is ours; its refusal changes nothing.
            unsafe { libc::madvise(memory.cast(), bytes, libc::MADV_HUGEPAGE) };
        }
        Ok(Bounce { memory, layout })
    }

    pub fn address(&self) -> usize {
        self.memory as usize
    }

    pub fn bytes(&self) -> usize {
        self.layout.size()
    }

    /// Copies the block, which lies at the start of the buffer, to where its segments want it.
    ///
    /// # Safety
    /// The block's bytes are in the buffer, and its segments' memory is writable and not in use elsewhere.
    pub unsafe fn scatter(&self, layout: &TransferLayout, block: &Block) {
        let mut vectors = Vec::new();
        layout.vectors(block, block.offset, &mut vectors);
        let mut from = 0;
        for vector in &vectors {
            debug_assert!(from + vector.iov_len <= self.layout.size());
            // SAFETY: promised by the caller; buffer and target are distinct memory.
            unsafe { std::ptr::copy_nonoverlapping(self.memory.add(from), vector.iov_base.cast(), vector.iov_len) };
            from += vector.iov_len;
        }
    }
}

impl Drop for Bounce {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.memory, self.layout) };
    }
}
