//! Reading a range through the page cache, to its end.

use crate::error::Result;
use crate::io::engine::{self, Engine, Read, Way};
use crate::io::layout::Block;
use crate::io::patience::Patience;
use crate::io::shared::Shared;

/// What a thread keeps for its reads.
pub struct Reader {
    engine: Box<dyn Engine>,
    vectors: Vec<libc::iovec>,
}

impl Reader {
    pub fn new(shared: &Shared) -> Self {
        Reader { engine: shared.pread(), vectors: Vec::new() }
    }

    /// Reads `[from, block.end())` to its place. False when the transfer was stopped meanwhile.
    pub fn read(&mut self, shared: &Shared, block: &Block, from: u64) -> Result<bool> {
        let state = shared.file_of(block);
        let Some(open) = state.opened() else { return Ok(false) };
        let mut position = from;
        let mut patience = Patience::default();
        while position < block.end() {
            if shared.queue.stopped() {
                return Ok(false);
            }
            shared.layout.vectors(block, position, &mut self.vectors);
            let read = Read { fd: open.buffered(), way: Way::Buffered, memory: &self.vectors, offset: position };
            // SAFETY: the memory is pinned by the transfer, and this block's alone.
            match unsafe { engine::read(&mut *self.engine, &read) } {
                Ok(0) => return Err(state.unexpected_end(position)),
                Ok(count) => position += count as u64,
                Err(libc::EINTR) => {}
                Err(libc::EAGAIN) if patience.try_again() => {}
                Err(errno) => return Err(state.read_error(position, block.end() - position, "pread", errno)),
            }
        }
        Ok(true)
    }

    /// Reads what the page cache holds of a block from its start on. Tells how far it came.
    pub fn read_cached(&mut self, shared: &Shared, block: &Block) -> Result<u64> {
        let state = shared.file_of(block);
        let Some(open) = state.opened() else { return Ok(block.offset) };
        let mut position = block.offset;
        while position < block.end() && !shared.queue.stopped() {
            shared.layout.vectors(block, position, &mut self.vectors);
            let read = Read { fd: open.buffered(), way: Way::Cached, memory: &self.vectors, offset: position };
            // SAFETY: as above.
            match unsafe { engine::read(&mut *self.engine, &read) } {
                Ok(0) => return Err(state.unexpected_end(position)),
                Ok(count) => position += count as u64,
                Err(libc::EINTR) => {}
                Err(_) => break,
            }
        }
        Ok(position)
    }
}
