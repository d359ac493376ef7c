//! The direct lane: reads around the page cache, straight to their place where alignment allows it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::bounce::Bounce;
use super::fault::FaultKind;
use super::file::OpenFile;
use super::layout::{Block, MAX_BOUNCE_BYTES};
use super::shared::{DirectQueue, Shared};
use super::transfer::Driver;
use super::uring::Refusal;
use super::{buffered, sys, uring};
use crate::error::errno_name;

/// Threads of the lane where io_uring is refused or not trusted: enough reads in flight to keep a disk busy.
const DIRECT_THREADS: usize = 8;

/// Starts the half of the lane that a queue feeds: one thread with a ring, or several threads with plain reads where there is no io_uring, or
/// where it must not be used.
pub fn start_lane(shared: &Arc<Shared>, from: DirectQueue) {
    if from == DirectQueue::ThreadsOnly {
        return spawn_threads(shared, from, None);
    }
    match uring::new_ring(shared.settings.queue_depth) {
        Ok(ring) => {
            if let Err(error) = super::transfer::spawn(shared, "mx-ring", move |shared| uring::run(shared, ring)) {
                shared.report(Err(error));
            }
        }
        Err(refusal) if shared.settings.driver == Driver::IoUring => shared.report(Err(refusal.error())),
        Err(refusal) => spawn_threads(shared, from, Some(refusal)),
    }
}

/// Starts the threads that read what a queue has; `refusal` is why there is no ring, where that is why.
pub fn spawn_threads(shared: &Arc<Shared>, from: DirectQueue, refusal: Option<Refusal>) {
    super::transfer::spawn_all(shared, "mx-direct", DIRECT_THREADS, move |shared| run_thread(shared, from, refusal));
}

/// Body of a direct thread.
pub fn run_thread(shared: &Arc<Shared>, from: DirectQueue, refusal: Option<Refusal>) {
    let mut spare = None;
    while let Some(block) = shared.next_direct(from, true) {
        let state = &shared.files[block.file as usize];
        state.direct_by_threads.store(true, Ordering::Relaxed);
        if let Some(system) = state.unsound.get() {
            state.note_fallback(format!("io_uring is not known to be sound on {system}: direct reads by threads"));
        } else if let Some(refusal) = refusal {
            state.note_fallback(format!("{refusal}: direct reads by threads"));
        }
        let Some(mut read) = DirectRead::new(shared, block, &mut spare) else { continue };
        loop {
            let (address, length, offset) = read.next_read();
            let result = match read.fault(shared) {
                Some(errno) => Err(errno),
                None => match read.file.direct(&shared.files[read.block.file as usize].spec) {
                    // SAFETY: the target is pinned memory of this block alone, or its bounce buffer.
                    Ok(fd) => unsafe { sys::pread(fd, address, length, offset) }.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO)),
                    Err(errno) => Err(errno),
                },
            };
            if read.complete(shared, result) == Step::Finished {
                spare = read.bounce.take().or(spare);
                break;
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask [`DirectRead::next_read`] for the rest.
    Again,
    /// In place, handed to the other lane, or failed and reported.
    Finished,
}

/// One direct block on its way.
pub struct DirectRead {
    pub block: Block,
    pub file: Arc<OpenFile>,
    pub bounce: Option<Bounce>,
    target: usize,
    position: u64,
    short: Option<u64>,
    stall: Option<std::time::Duration>,
    patience: buffered::Patience,
}

impl DirectRead {
    /// Takes `spare` as the bounce buffer where one is needed. None when the transfer has been stopped and the file closed, or there is no memory
    /// for a bounce buffer, which is reported.
    pub fn new(shared: &Shared, block: Block, spare: &mut Option<Bounce>) -> Option<Self> {
        let state = &shared.files[block.file as usize];
        let file = state.opened()?;
        let in_place = shared.layout.in_place(&block).filter(|address| state.spec.align.allows_address(*address));
        let bounce = match in_place {
            Some(_) => None,
            None => Some(match spare.take() {
                Some(bounce) if bounce.bytes() >= block.length as usize => bounce,
                _ => match Bounce::new(block.length.max(MAX_BOUNCE_BYTES) as usize) {
                    Ok(bounce) => bounce,
                    Err(error) => {
                        shared.report(Err(error));
                        return None;
                    }
                },
            }),
        };
        let target = in_place.unwrap_or_else(|| bounce.as_ref().map_or(0, Bounce::address));
        Some(DirectRead {
            position: block.offset,
            block,
            file,
            bounce,
            target,
            short: None,
            stall: None,
            patience: buffered::Patience::default(),
        })
    }

    /// Address, length and file offset of the read that is due.
    pub fn next_read(&self) -> (usize, usize, u64) {
        let done = (self.position - self.block.offset) as usize;
        (self.target + done, self.block.length as usize - done, self.position)
    }

    /// Draws the planned fault of the read that is due; an errno means that it shall not be made.
    pub fn fault(&mut self, shared: &Shared) -> Option<i32> {
        match shared.faults.next(true)? {
            FaultKind::Fail(errno) | FaultKind::FailDirect(errno) | FaultKind::FailEnter(errno) => return Some(errno),
            FaultKind::Short(bytes) => self.short = Some(bytes.max(1)),
            FaultKind::Stall(time) => self.stall = Some(time),
        }
        None
    }

    /// Takes in the result of a read: bytes, or errno.
    pub fn complete(&mut self, shared: &Arc<Shared>, result: Result<usize, i32>) -> Step {
        if let Some(time) = self.stall.take() {
            std::thread::sleep(time);
        }
        let state = &shared.files[self.block.file as usize];
        let count = match result {
            Ok(count) => count.min(self.short.take().unwrap_or(u64::MAX) as usize) as u64,
            Err(libc::EINTR) => return Step::Again,
            Err(libc::EAGAIN) if !state.direct_refused.load(Ordering::Relaxed) && self.patience.try_again() => return Step::Again,
            // The way is refused, or there is no memory to hold pages for it: ordinary reads need neither.
            Err(errno @ (libc::EINVAL | libc::EOPNOTSUPP | libc::EAGAIN | libc::ENOMEM)) if shared.may_fall_back() => {
                state.direct_refused.store(true, Ordering::Relaxed);
                state.note_fallback(format!("direct read refused ({})", errno_name(errno)));
                shared.return_to_buffered(&self.block);
                return Step::Finished;
            }
            Err(errno) => {
                shared.report(Err(state.read_error(self.position, self.block.end() - self.position, "direct read", errno)));
                return Step::Finished;
            }
        };
        if count == 0 {
            shared.report(Err(state.unexpected_end(self.position)));
            return Step::Finished;
        }
        self.position += count;
        let align = state.spec.align;
        let next_target = self.target + (self.position - self.block.offset) as usize;
        if self.position < self.block.end() && self.position.is_multiple_of(align.offset) && align.allows_address(next_target) {
            return Step::Again;
        }
        if let Some(bounce) = &self.bounce {
            let read = Block { length: self.position - self.block.offset, ..self.block.clone() };
            // SAFETY: the bytes up to `position` are in the buffer; the target is pinned memory of this block alone.
            unsafe { bounce.scatter(&shared.layout, &read) };
        }
        // A short read that ended off the alignment cannot be continued directly.
        let outcome = match buffered::read_range(shared, &self.block, self.position, &mut Vec::new()) {
            Ok(true) => shared.block_done(&self.block, true),
            Ok(false) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            shared.report(Err(error));
        }
        Step::Finished
    }
}
