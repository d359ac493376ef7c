//! Holding an allocation while something reads or writes it.

use std::sync::Arc;

use super::Arena;

/// While it lives, `free` of its allocation and `close` of its arena fail with ERR_ARENA_BUSY. It
/// keeps the arena's memory.
pub struct Pin {
    arena: Arc<Arena>,
    /// Of the allocation pinned.
    start: usize,
}

impl Pin {
    pub(super) fn new(arena: Arc<Arena>, start: usize) -> Self {
        Pin { arena, start }
    }

    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.arena.let_go(|records| records.unpin(self.start));
    }
}
