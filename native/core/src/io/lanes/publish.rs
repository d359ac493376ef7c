//! Hands out what a file, or a block of unknown residency, became.

use std::sync::Arc;

use super::direct;
use crate::io::layout::Block;
use crate::io::queue::{Half, Hint};
use crate::io::shared::Shared;

/// Starts a half of the direct lane with its first block.
pub fn publish(shared: &Arc<Shared>, file: usize, buffered: Vec<(Block, Hint)>, direct: Vec<Block>) {
    let state = &shared.files[file];
    state.add_blocks(buffered.len() + direct.len());
    let half = if state.unsound.get().is_some() { Half::ThreadsOnly } else { Half::Any };
    if shared.queue.publish(half, buffered, direct) {
        direct::start(shared, half);
    }
}
