//! One direct block on its way: the read that is due, and what its answer means.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::ordinary::Reader;
use crate::io::bounce::Bounce;
use crate::io::engine::{Engine, Read, Way};
use crate::io::file::OpenFile;
use crate::io::layout::Block;
use crate::io::patience::Patience;
use crate::io::policy;
use crate::io::settings::MAX_BOUNCE_BYTES;
use crate::io::shared::Shared;

#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Another read is due.
    Again,
    /// In place, handed to the buffered lane, or failed and reported.
    Finished,
}

pub struct DirectRead {
    pub block: Block,
    file: Arc<OpenFile>,
    bounce: Option<Bounce>,
    /// Where the block's first byte goes.
    target: usize,
    position: u64,
    patience: Patience,
}

impl DirectRead {
    /// Takes `spare` as the bounce buffer where one is needed. None when the transfer was stopped
    /// and the file closed, or there is no memory for a bounce buffer, which is reported.
    pub fn new(shared: &Shared, block: Block, spare: &mut Option<Bounce>) -> Option<Self> {
        let state = shared.file_of(&block);
        let file = state.opened()?;
        let in_place = shared.layout.in_place(&block).filter(|address| state.spec.align.allows_address(*address));
        let (target, bounce) = match in_place {
            Some(address) => (address, None),
            None => {
                let kept = spare.take().filter(|bounce| bounce.bytes() >= block.length as usize);
                let bounce = kept.map_or_else(|| Bounce::new(block.length.max(MAX_BOUNCE_BYTES) as usize), Ok);
                match bounce {
                    Ok(bounce) => (bounce.address(), Some(bounce)),
                    Err(error) => {
                        shared.conclude(Err(error));
                        return None;
                    }
                }
            }
        };
        Some(DirectRead { position: block.offset, block, file, bounce, target, patience: Patience::default() })
    }

    pub fn bounces(&self) -> bool {
        self.bounce.is_some()
    }

    pub fn take_bounce(&mut self) -> Option<Bounce> {
        self.bounce.take()
    }

    /// Hands the read that is due to an engine. An errno means that it was not taken.
    ///
    /// # Safety
    /// This stays as it is until the answer; the block's memory is nobody else's.
    pub unsafe fn submit(&self, shared: &Shared, engine: &mut dyn Engine, tag: usize) -> Result<(), i32> {
        let done = (self.position - self.block.offset) as usize;
        let memory = [libc::iovec { iov_base: (self.target + done) as *mut libc::c_void, iov_len: self.block.length as usize - done }];
        let fd = self.file.direct(&shared.file_of(&self.block).spec)?;
        // SAFETY: promised by the caller; the file is held by this.
        unsafe { engine.submit(tag, &Read { fd, way: Way::Direct, memory: &memory, offset: self.position }) }
    }

    /// Takes in the result of a read: bytes, or errno.
    pub fn complete(&mut self, shared: &Shared, reader: &mut Reader, result: Result<usize, i32>) -> Step {
        let state = shared.file_of(&self.block);
        let count = match result {
            Ok(count) => count as u64,
            Err(libc::EINTR) => return Step::Again,
            Err(libc::EAGAIN) if !state.direct_refused.load(Ordering::Relaxed) && self.patience.try_again() => return Step::Again,
            Err(errno) if policy::refuses_direct(errno) && shared.settings.driver.may_fall_back() => {
                state.direct_refused.store(true, Ordering::Relaxed);
                state.note_fallback(policy::refused_direct(errno));
                self.return_to_buffered(shared);
                return Step::Finished;
            }
            Err(errno) => {
                shared.conclude(Err(state.read_error(self.position, self.block.end() - self.position, "direct read", errno)));
                return Step::Finished;
            }
        };
        if count == 0 {
            shared.conclude(Err(state.unexpected_end(self.position)));
            return Step::Finished;
        }
        self.position += count;
        let next_target = self.target + (self.position - self.block.offset) as usize;
        if self.position < self.block.end() && state.spec.align.allows(self.position, next_target) {
            return Step::Again;
        }
        if let Some(bounce) = &self.bounce {
            let read = Block { length: self.position - self.block.offset, ..self.block.clone() };
            // SAFETY: the bytes up to `position` are in the buffer; the target is pinned memory of
            // this block alone.
            unsafe { bounce.scatter(&shared.layout, &read) };
        }
        // A short read that ended off the alignment cannot be continued directly.
        let outcome = match reader.read(shared, &self.block, self.position) {
            Ok(true) => shared.direct_done(&self.block),
            Ok(false) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            shared.conclude(Err(error));
        }
        Step::Finished
    }

    fn return_to_buffered(&self, shared: &Shared) {
        let mut blocks = Vec::new();
        let (sequence, bytes) = (shared.sequence_of(&self.block), shared.settings.buffered_block_bytes);
        shared.layout.cut_buffered(sequence, self.block.offset..self.block.end(), bytes, &mut blocks);
        shared.file_of(&self.block).add_blocks(blocks.len() - 1);
        shared.queue.return_to_buffered(blocks);
    }
}
