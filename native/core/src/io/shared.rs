//! What the threads of one transfer share: the two queues, the files, the first failure, the counters.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use super::fault::FaultPlan;
use super::file::FileState;
use super::layout::{Block, Layout};
use super::transfer::{Driver, Settings};
use crate::error::{Error, Result};

/// Files open at one time; two descriptors each at the most. Keeps a transfer of any number of shards within small descriptor limits.
pub const MAX_OPEN_FILES: usize = 24;

/// How often, and after which pause, a file is tried again that cannot be opened for want of descriptors: other loads may have them.
const STARVED_ATTEMPTS: u32 = 500;
const STARVED_PAUSE: std::time::Duration = std::time::Duration::from_millis(10);

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
    Probe,
}

#[derive(Default)]
pub struct Queues {
    pub buffered: VecDeque<(Block, Hint)>,
    pub direct: VecDeque<Block>,
    /// Direct blocks that io_uring must not read.
    pub threads_only: VecDeque<Block>,
    /// Next file that nobody has cut yet.
    pub next_file: usize,
    /// Files put back because there was no descriptor for them.
    pub put_back: Vec<usize>,
    pub open_files: usize,
    /// Files to have open at one time from now on, once descriptors ran out; 0 for no such experience.
    pub open_files_limit: usize,
    /// Times that a file could not be opened although this transfer had no other open.
    pub starved: u32,
    /// Scouts at work.
    pub scouting: usize,
    /// Direct blocks taken and not yet done; they can come back to the buffered queue.
    pub direct_in_flight: usize,
    /// Buffered blocks taken that can still send work to the direct lane.
    pub probing: usize,
    /// The direct lane runs.
    pub direct_started: bool,
    /// The threads for `threads_only` run.
    pub threads_only_started: bool,
}

pub type Done = Box<dyn FnOnce(Result<()>) + Send>;
type Epilogue = Box<dyn FnOnce() + Send>;

pub struct Shared {
    pub settings: Settings,
    pub layout: Layout,
    pub files: Vec<FileState>,
    /// Files up to the last that has something to read. Scouting it is the last thing that can bring new work, and wakes all who wait for that.
    files_end: usize,
    /// Runs of each file, as a range of indexes into `layout.runs`.
    pub runs_of_file: Vec<std::ops::Range<usize>>,
    pub queues: Mutex<Queues>,
    pub wake: Condvar,
    pub faults: FaultPlan,
    pub bytes_done: AtomicU64,
    /// Set at failure and abort: no thread starts another read.
    pub stop: AtomicBool,
    pub threads_running: AtomicUsize,
    done: Mutex<Option<Done>>,
    failed: AtomicBool,
    /// Lets the memory go and tells that the transfer has settled.
    epilogue: Mutex<Option<Epilogue>>,
}

/// The two queues of the direct lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectQueue {
    /// For io_uring, or threads where it is refused.
    Any,
    /// For threads, of files that io_uring is not known to read rightly.
    ThreadsOnly,
}

/// What a thread of a lane shall do next.
pub enum Work {
    Buffered(Block, Hint),
    Scout(usize),
    Exit,
}

impl Shared {
    pub fn new(settings: Settings, layout: Layout, files: Vec<FileState>, faults: FaultPlan, done: Done) -> Self {
        let mut runs_of_file = vec![0..0; files.len()];
        for (index, run) in layout.runs.iter().enumerate() {
            let file = layout.segments[run.start].file as usize;
            if runs_of_file[file].is_empty() {
                runs_of_file[file] = index..index + 1;
            } else {
                runs_of_file[file].end = index + 1;
            }
        }
        let files_end = layout.segments.last().map_or(0, |segment| segment.file as usize + 1);
        Shared {
            settings,
            files_end,
            layout,
            files,
            runs_of_file,
            queues: Mutex::new(Queues::default()),
            wake: Condvar::new(),
            faults,
            bytes_done: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            threads_running: AtomicUsize::new(0),
            done: Mutex::new(Some(done)),
            failed: AtomicBool::new(false),
            epilogue: Mutex::new(None),
        }
    }

    pub fn set_epilogue(&self, epilogue: Epilogue) {
        *self.epilogue.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(epilogue);
    }

    pub fn run_epilogue(&self) {
        let epilogue = self.epilogue.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        if let Some(epilogue) = epilogue {
            epilogue();
        }
    }

    /// No more buffered threads than this can have work.
    pub fn blocks_at_most(&self) -> usize {
        let blocks = self.layout.total_bytes.div_ceil(self.settings.buffered_block_bytes.clamp(1, 1 << 20)) as usize;
        blocks.max(self.layout.runs.len()).max(1)
    }

    pub fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Reports the outcome once; later ones are dropped.
    pub fn report(&self, outcome: Result<()>) {
        if outcome.is_err() {
            self.failed.store(true, Ordering::Release);
            self.stop.store(true, Ordering::Release);
            // Under the lock, so that no waiting thread misses it between its check and its sleep.
            drop(self.lock());
            self.wake.notify_all();
        }
        let done = self.done.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        if let Some(done) = done {
            done(outcome);
        }
    }

    pub fn failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Next work of a buffered thread; waits until there is some or all is done.
    pub fn next_buffered(&self) -> Work {
        let mut queues = self.lock();
        loop {
            if self.stopped() {
                return Work::Exit;
            }
            if let Some((block, hint)) = queues.buffered.pop_front() {
                if hint == Hint::Probe {
                    queues.probing += 1;
                }
                return Work::Buffered(block, hint);
            }
            if queues.next_file < self.files_end || !queues.put_back.is_empty() {
                let limit = if queues.open_files_limit == 0 { MAX_OPEN_FILES } else { queues.open_files_limit };
                if queues.open_files < limit {
                    let file = match queues.put_back.pop() {
                        Some(file) => file,
                        None => {
                            queues.next_file += 1;
                            queues.next_file - 1
                        }
                    };
                    if self.runs_of_file[file].is_empty() {
                        continue;
                    }
                    queues.open_files += 1;
                    queues.scouting += 1;
                    return Work::Scout(file);
                }
            } else if self.nothing_can_come(&queues) {
                return Work::Exit;
            }
            queues = self.wake.wait(queues).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    /// True when the buffered queue can get no more work.
    fn nothing_can_come(&self, queues: &Queues) -> bool {
        queues.scouting == 0
            && queues.direct_in_flight == 0
            && queues.direct.is_empty()
            && queues.threads_only.is_empty()
            && queues.probing == 0
    }

    /// True when the direct queue can get no more work.
    fn no_direct_can_come(&self, queues: &Queues) -> bool {
        let probes = queues.probing > 0 || queues.buffered.iter().any(|(_, hint)| *hint == Hint::Probe);
        queues.next_file >= self.files_end && queues.put_back.is_empty() && queues.scouting == 0 && !probes
    }

    /// Next direct block. `wait`: sleep until there is one or none can come any more; None then.
    pub fn next_direct(&self, from: DirectQueue, wait: bool) -> Option<Block> {
        let mut queues = self.lock();
        loop {
            if self.stopped() {
                return None;
            }
            let queue = match from {
                DirectQueue::Any => &mut queues.direct,
                DirectQueue::ThreadsOnly => &mut queues.threads_only,
            };
            if let Some(block) = queue.pop_front() {
                queues.direct_in_flight += 1;
                return Some(block);
            }
            if !wait || self.no_direct_can_come(&queues) {
                return None;
            }
            queues = self.wake.wait(queues).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    /// Hands out what a scout or a probe found; starts a half of the direct lane with its first block.
    pub fn publish(self: &Arc<Self>, file: usize, buffered: Vec<(Block, Hint)>, direct: Vec<Block>, ended: impl FnOnce(&mut Queues)) {
        self.files[file].add_blocks(buffered.len() + direct.len());
        let mut queues = self.lock();
        queues.buffered.extend(buffered);
        let queues_now = &mut *queues;
        let (from, queue, started) = match self.files[file].unsound.get() {
            None => (DirectQueue::Any, &mut queues_now.direct, &mut queues_now.direct_started),
            Some(_) => (DirectQueue::ThreadsOnly, &mut queues_now.threads_only, &mut queues_now.threads_only_started),
        };
        let start = !direct.is_empty() && !*started;
        *started |= start;
        queue.extend(direct);
        ended(queues_now);
        drop(queues);
        if start {
            super::direct::start_lane(self, from);
        }
        self.wake.notify_all();
    }

    /// Puts a file back that no descriptor could be had for: with fewer files open at a time there will be one. False once that was tried long
    /// enough while this transfer had no file open at all.
    pub fn put_back(&self, file: usize) -> bool {
        self.files[file].close();
        let mut queues = self.lock();
        queues.scouting -= 1;
        queues.open_files -= 1;
        let alone = queues.open_files == 0;
        queues.starved += u32::from(alone);
        let go_on = queues.starved < STARVED_ATTEMPTS;
        queues.open_files_limit = queues.open_files.max(1);
        queues.put_back.push(file);
        drop(queues);
        self.wake.notify_all();
        if alone && go_on {
            std::thread::sleep(STARVED_PAUSE);
        }
        go_on
    }

    /// Gives direct blocks to the buffered lane: direct I/O turned out not to work for them.
    pub fn return_to_buffered(&self, block: &Block) {
        let run = self.run_of(block);
        let mut blocks = Vec::new();
        self.layout.cut_buffered(&run, block.offset..block.end(), self.settings.buffered_block_bytes, &mut blocks);
        self.files[block.file as usize].add_blocks(blocks.len() - 1);
        let mut queues = self.lock();
        queues.direct_in_flight -= 1;
        queues.buffered.extend(blocks.into_iter().map(|block| (block, Hint::Uncached)));
        drop(queues);
        self.wake.notify_all();
    }

    /// Gives a direct block back to its queue: the ring that had taken it is gone.
    pub fn requeue_direct(&self, block: Block) {
        let mut queues = self.lock();
        queues.direct_in_flight -= 1;
        queues.direct.push_front(block);
        drop(queues);
        self.wake.notify_all();
    }

    /// The run that a block was cut from.
    pub fn run_of(&self, block: &Block) -> std::ops::Range<usize> {
        let at = self.layout.runs.partition_point(|run| run.end <= block.segments.start);
        self.layout.runs[at].clone()
    }

    /// One block is in place: counts it, and closes its file after the last one.
    pub fn block_done(&self, block: &Block, direct: bool) -> Result<()> {
        self.bytes_done.fetch_add(block.length, Ordering::Relaxed);
        let state = &self.files[block.file as usize];
        let counter = if direct { &state.direct_bytes } else { &state.buffered_bytes };
        counter.fetch_add(block.length, Ordering::Relaxed);
        let closed = state.finish_block();
        let mut queues = self.lock();
        if direct {
            queues.direct_in_flight -= 1;
        }
        if matches!(closed, Ok(true)) {
            queues.open_files -= 1;
        }
        // Sleeping threads care for the end of all work, and for room to open the next file.
        let wake = direct || matches!(closed, Ok(true));
        drop(queues);
        if wake {
            self.wake.notify_all();
        }
        closed.map(|_| ())
    }

    /// True when direct I/O may be left for buffered reads without the caller's word.
    pub fn may_fall_back(&self) -> bool {
        self.settings.driver == Driver::Auto
    }

    /// Reads of both lanes so far.
    pub fn reads(&self) -> u64 {
        self.faults.reads()
    }

    pub fn aborted_error() -> Error {
        Error::new("ERR_TRANSFER_ABORTED", "the transfer was aborted")
    }
}
