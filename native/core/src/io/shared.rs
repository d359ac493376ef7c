//! What the threads of one transfer share: what to read, the queue, the counters, the outcome.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::engine::{Counting, Engine, Pread, Refusal, Uring, Wrap};
use super::file::FileState;
use super::layout::{Block, Layout};
use super::queue::Queue;
use super::settings::{MAX_OPEN_FILES, Settings};
use crate::error::Result;

pub type Done = Box<dyn FnOnce(&Shared, Result<()>) + Send>;
type Epilogue = Box<dyn FnOnce() + Send>;

pub struct Shared {
    pub settings: Settings,
    pub layout: Layout,
    pub files: Vec<FileState>,
    /// Sequences of each file, as a range of indexes into `layout.sequences`.
    sequences_of_file: Vec<Range<usize>>,
    pub queue: Queue,
    wrap: Wrap,
    reads: Arc<AtomicU64>,
    bytes_done: AtomicU64,
    pub threads_running: AtomicUsize,
    done: Mutex<Option<Done>>,
    failed: AtomicBool,
    /// Lets the memory go and tells that the transfer has settled.
    epilogue: Mutex<Option<Epilogue>>,
}

impl Shared {
    pub fn new(settings: Settings, layout: Layout, files: Vec<FileState>, wrap: Wrap, done: Done, epilogue: Epilogue) -> Self {
        let file_of = |sequence: &Range<usize>| layout.pieces[sequence.start].file as usize;
        let sequences_of_file: Vec<Range<usize>> = (0..files.len())
            .map(|file| {
                let from = layout.sequences.partition_point(|sequence| file_of(sequence) < file);
                from..layout.sequences.partition_point(|sequence| file_of(sequence) <= file)
            })
            .collect();
        let read = sequences_of_file.iter().enumerate().filter(|(_, sequences)| !sequences.is_empty()).map(|(file, _)| file);
        Shared {
            queue: Queue::new(read, MAX_OPEN_FILES),
            settings,
            layout,
            files,
            sequences_of_file,
            wrap,
            reads: Arc::default(),
            bytes_done: AtomicU64::new(0),
            threads_running: AtomicUsize::new(0),
            done: Mutex::new(Some(done)),
            failed: AtomicBool::new(false),
            epilogue: Mutex::new(Some(epilogue)),
        }
    }

    pub fn run_epilogue(&self) {
        if let Some(epilogue) = self.epilogue.lock().unwrap_or_else(PoisonError::into_inner).take() {
            epilogue();
        }
    }

    /// No more buffered threads than this can have work.
    pub fn blocks_at_most(&self) -> usize {
        let blocks = self.layout.total_bytes.div_ceil(self.settings.buffered_block_bytes.clamp(1, 1 << 20)) as usize;
        blocks.max(self.layout.sequences.len()).max(1)
    }

    /// Reports the outcome once; later ones are dropped. A failure stops the threads.
    pub fn conclude(&self, outcome: Result<()>) {
        if outcome.is_err() {
            self.failed.store(true, Ordering::Release);
            self.queue.stop();
        }
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(done) = done {
            done(self, outcome);
        }
    }

    pub fn failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    pub fn file_of(&self, block: &Block) -> &FileState {
        &self.files[block.file as usize]
    }

    /// The sequences of a file.
    pub fn sequences(&self, file: usize) -> &[Range<usize>] {
        &self.layout.sequences[self.sequences_of_file[file].clone()]
    }

    /// The sequence that a block was cut from.
    pub fn sequence_of(&self, block: &Block) -> &Range<usize> {
        let at = self.layout.sequences.partition_point(|sequence| sequence.end <= block.pieces.start);
        &self.layout.sequences[at]
    }

    /// What makes plain reads for one thread.
    pub fn pread(&self) -> Box<dyn Engine> {
        self.counted(Box::new(Pread::default()))
    }

    /// What makes reads through io_uring for one thread.
    pub fn uring(&self) -> std::result::Result<Box<dyn Engine>, Refusal> {
        Ok(self.counted(Box::new(Uring::new(self.settings.queue_depth)?)))
    }

    fn counted(&self, engine: Box<dyn Engine>) -> Box<dyn Engine> {
        (self.wrap)(Box::new(Counting { inner: engine, reads: self.reads.clone() }))
    }

    /// Reads so far, of both lanes.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    pub fn bytes_done(&self) -> u64 {
        self.bytes_done.load(Ordering::Acquire)
    }

    /// A buffered block is in place.
    pub fn buffered_done(&self, block: &Block) -> Result<()> {
        self.file_of(block).buffered_bytes.fetch_add(block.length, Ordering::Relaxed);
        self.block_done(block)
    }

    /// A direct block is in place.
    pub fn direct_done(&self, block: &Block) -> Result<()> {
        self.file_of(block).direct_bytes.fetch_add(block.length, Ordering::Relaxed);
        let outcome = self.block_done(block);
        self.queue.direct_done();
        outcome
    }

    /// Counts a block, and closes its file after the last one.
    fn block_done(&self, block: &Block) -> Result<()> {
        self.bytes_done.fetch_add(block.length, Ordering::AcqRel);
        if self.file_of(block).finish_block()? {
            self.queue.file_closed();
        }
        Ok(())
    }
}
