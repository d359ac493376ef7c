//! Memory that JavaScript sees without a copy. Its buffers are detached before their memory goes, but the engine can have moved the memory into
//! a buffer that nobody told us of (a stream of bytes does); what keeps the process alive then is in here.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Arena;
use crate::error::Result;

/// While it lives, memory that is given back leaves readable zeros behind, and the arena's address space is not handed to anyone else.
/// It does not keep the bytes: `free` and `close` take them all the same.
pub struct View {
    arena: Arc<Arena>,
}

impl Arena {
    /// A view of `[address, address + length)`, whose allocation only the arena's owner frees from now on: see `free_as_stranger`.
    /// ERR_ARENA_ADDRESS where that is not inside one live allocation, ERR_ARENA_CLOSED.
    pub fn view(self: &Arc<Self>, address: usize, length: usize) -> Result<View> {
        let pin = self.pin(address, length)?;
        self.mark_viewed(address, length)?;
        self.views.fetch_add(1, Ordering::SeqCst);
        drop(pin);
        Ok(View { arena: Arc::clone(self) })
    }
}

impl Drop for View {
    fn drop(&mut self) {
        if self.arena.views.fetch_sub(1, Ordering::SeqCst) == 1 {
            // A failure leaves address space behind, and there is nobody to tell.
            let _ = self.arena.release_kept_reserve();
        }
    }
}
