//! Memory that JavaScript sees without a copy.

use std::sync::Arc;

use super::{Allocation, Arena};
use crate::error::Result;

/// While it lives, the memory of its allocation stays: `free` and `close` take everything else at
/// once, and this with the last view.
pub struct View {
    arena: Arc<Arena>,
    allocation: Allocation,
}

impl Arena {
    /// A view of `[address, address + length)`. ERR_ARENA_ADDRESS where that is not inside one live
    /// allocation, ERR_ARENA_CLOSED.
    pub fn view(self: &Arc<Self>, address: usize, length: usize) -> Result<View> {
        let allocation = self.hold(address, length, |records| records.view(address, length))?;
        Ok(View { arena: Arc::clone(self), allocation })
    }
}

impl View {
    /// What it is a view of.
    pub fn allocation(&self) -> Allocation {
        self.allocation
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.arena.let_go(|records| records.unview(self.allocation.address));
    }
}
