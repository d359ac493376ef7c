//! Which thread of a transfer takes which work, and when there can be no more. Knows nothing of how
//! work is done.
//!
//! Work goes one way round. A file is scouted, and becomes blocks. Of a buffered block it may be
//! unknown what the page cache holds: the rest of it becomes direct blocks. A direct block may come
//! back as buffered ones. A thread ends when nothing is left that could bring it work.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use super::layout::Block;
use crate::sync::{AtomicBool, Condvar, Mutex, MutexGuard};

/// How often a file is tried again that cannot be opened for want of descriptors while this
/// transfer has none open: other loads may have them.
const STARVED_ATTEMPTS: u32 = 500;

/// What is known of a buffered block before it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// The page cache holds it all.
    Cached,
    /// Not cached, or an unaligned end that is too short to matter.
    Uncached,
    /// Nobody asked, and nobody will.
    Unasked,
    /// To be found out by a read that refuses to wait; what it leaves goes to the direct lane.
    Unknown,
}

/// The halves of the direct lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// For io_uring, or threads where it is refused.
    Any,
    /// For threads, of files that io_uring is not known to read rightly.
    ThreadsOnly,
}

/// What a buffered thread shall do next.
#[derive(Debug, PartialEq, Eq)]
pub enum Work {
    Buffered(Block, Hint),
    Scout(usize),
    Exit,
}

/// What became of a file that was put back.
#[derive(Debug, PartialEq, Eq)]
pub enum PutBack {
    /// It will be taken again once another file has been closed.
    Waits,
    /// No other file of this transfer is open: only others can give descriptors back.
    Starved,
    /// That was so for too long.
    GivenUp,
}

#[derive(Default)]
struct State {
    /// Files that nobody has scouted yet, the next one last.
    files: Vec<usize>,
    buffered: VecDeque<(Block, Hint)>,
    direct: [VecDeque<Block>; 2],
    /// The halves whose threads have been asked for.
    started: [bool; 2],
    /// Files not scouted, and unknown blocks not read: direct blocks may come of each.
    undecided: usize,
    /// Direct blocks not done: each may come back as buffered ones.
    direct_left: usize,
    open_files: usize,
    max_open_files: usize,
    starved: u32,
}

pub struct Queue {
    state: Mutex<State>,
    wake: Condvar,
    /// Set under the lock, read without.
    stopped: AtomicBool,
}

impl Queue {
    /// `files` in the order in which they are to be read, `max_open_files` of them open at one
    /// time.
    pub fn new(files: impl DoubleEndedIterator<Item = usize>, max_open_files: usize) -> Self {
        let files: Vec<usize> = files.rev().collect();
        let state = State { undecided: files.len(), files, max_open_files, ..State::default() };
        Queue { state: Mutex::new(state), wake: Condvar::new(), stopped: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.wake.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// No thread is given work any more.
    pub fn stop(&self) {
        // Under the lock, so that no thread misses it between its check and its sleep.
        let state = self.lock();
        self.stopped.store(true, Ordering::Release);
        drop(state);
        self.wake.notify_all();
    }

    pub fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Next work of a buffered thread; waits until there is some, or none can come.
    pub fn next_buffered(&self) -> Work {
        let mut state = self.lock();
        loop {
            if self.stopped() {
                return Work::Exit;
            }
            if let Some((block, hint)) = state.buffered.pop_front() {
                return Work::Buffered(block, hint);
            }
            if state.open_files < state.max_open_files
                && let Some(file) = state.files.pop()
            {
                state.open_files += 1;
                return Work::Scout(file);
            }
            if state.undecided == 0 && state.direct_left == 0 {
                return Work::Exit;
            }
            state = self.wait(state);
        }
    }

    /// Next direct block. `wait`: sleep until there is one; None once none can come.
    pub fn next_direct(&self, half: Half, wait: bool) -> Option<Block> {
        let mut state = self.lock();
        loop {
            if self.stopped() {
                return None;
            }
            if let Some(block) = state.direct[half as usize].pop_front() {
                return Some(block);
            }
            if !wait || state.undecided == 0 {
                return None;
            }
            state = self.wait(state);
        }
    }

    /// Takes in the blocks that a file or an unknown block became. True when `half` has to be
    /// started: it has got its first block.
    #[must_use]
    pub fn publish(&self, half: Half, buffered: Vec<(Block, Hint)>, direct: Vec<Block>) -> bool {
        let mut state = self.lock();
        state.undecided += buffered.iter().filter(|(_, hint)| *hint == Hint::Unknown).count();
        state.undecided -= 1;
        state.direct_left += direct.len();
        let start = !direct.is_empty() && !state.started[half as usize];
        state.started[half as usize] |= start;
        state.buffered.extend(buffered);
        state.direct[half as usize].extend(direct);
        drop(state);
        self.wake.notify_all();
        start
    }

    /// Takes back a file that no descriptor could be had for: with fewer files open at one time
    /// there will be one.
    pub fn put_back(&self, file: usize) -> PutBack {
        let mut state = self.lock();
        state.open_files -= 1;
        state.max_open_files = state.open_files.max(1);
        state.files.push(file);
        let outcome = if state.open_files > 0 {
            PutBack::Waits
        } else {
            state.starved += 1;
            if state.starved < STARVED_ATTEMPTS { PutBack::Starved } else { PutBack::GivenUp }
        };
        drop(state);
        self.wake.notify_all();
        outcome
    }

    /// A direct block that is to be read buffered after all, as these blocks.
    pub fn return_to_buffered(&self, blocks: Vec<Block>) {
        let mut state = self.lock();
        state.direct_left -= 1;
        state.buffered.extend(blocks.into_iter().map(|block| (block, Hint::Uncached)));
        drop(state);
        self.wake.notify_all();
    }

    /// A direct block that was taken and cannot be read by who took it.
    pub fn requeue_direct(&self, half: Half, block: Block) {
        self.lock().direct[half as usize].push_front(block);
        self.wake.notify_all();
    }

    /// A direct block is in place.
    pub fn direct_done(&self) {
        self.lock().direct_left -= 1;
        self.wake.notify_all();
    }

    /// A file has been closed: there is room for the next one.
    pub fn file_closed(&self) {
        self.lock().open_files -= 1;
        self.wake.notify_all();
    }
}
