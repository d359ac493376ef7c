//! One batch of reads from start to settled.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use super::fault::FaultPlan;
use super::file::{FileSpec, FileState};
use super::identity::Unkept;
use super::layout::{Layout, Segment};
use super::shared::{Done, Shared};
use super::{buffered, uring};
use crate::arena::Pin;
use crate::error::{Error, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// Buffered reads only.
    Pread,
    /// Direct reads through io_uring; refusals are errors.
    IoUring,
    /// Cached parts buffered, the rest direct; falls back.
    Auto,
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub driver: Driver,
    /// Threads of the buffered lane.
    pub threads: usize,
    /// Longest read of each lane, in bytes.
    pub buffered_block_bytes: u64,
    pub direct_block_bytes: u64,
    /// Direct reads in flight.
    pub queue_depth: u32,
}

/// What became of one file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileSummary {
    pub buffered_bytes: u64,
    /// Of the buffered bytes, those that the page cache held; None where nobody asked.
    pub cached_bytes: Option<u64>,
    pub direct_bytes: u64,
    /// Direct reads were made by threads: io_uring is refused, or not known to be sound on this file system.
    pub direct_by_threads: bool,
    pub fallback: String,
    pub unkept: Unkept,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    pub files: Vec<FileSummary>,
    pub reads: u64,
}

/// A transfer in flight. Dropping it does not stop it: its threads hold what they need, the pins included.
pub struct Transfer {
    shared: Arc<Shared>,
}

impl Transfer {
    /// Starts reading. `done` is called exactly once, with the first failure or the summary; `settled` once, after `done` and after the last read
    /// has returned. Both run on a thread of the transfer. `pins` hold the memory until then.
    ///
    /// # Errors
    /// ERR_TRANSFER_IO_URING_REFUSED when io_uring was asked for by name and is refused; then neither callback is called.
    pub fn start(
        settings: Settings,
        files: Vec<FileSpec>,
        pieces: Vec<Segment>,
        faults: FaultPlan,
        pins: Vec<Pin>,
        done: impl FnOnce(Result<Summary>) + Send + 'static,
        settled: impl FnOnce() + Send + 'static,
    ) -> Result<Transfer> {
        if settings.driver == Driver::IoUring {
            uring::new_ring(settings.queue_depth).map_err(|refusal| refusal.error())?;
        }
        let layout = Layout::new(pieces.into_iter());
        let files: Vec<FileState> = files.into_iter().map(FileState::new).collect();
        let slot: Arc<Mutex<Option<Arc<Shared>>>> = Arc::new(Mutex::new(None));
        let for_summary = slot.clone();
        let report: Done =
            Box::new(move |outcome| {
                let shared = for_summary.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
                done(outcome.and_then(|()| {
                    shared.map(|shared| summary(&shared)).ok_or_else(|| Error::new("ERR_INTERNAL", "a transfer ended twice"))
                }));
            });
        let threads = settings.threads.max(1);
        let shared = Arc::new(Shared::new(settings, layout, files, faults, report));
        *slot.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(shared.clone());
        shared.set_epilogue(Box::new(move || {
            drop(pins);
            settled();
        }));
        // This guard counts as a thread, so that the last of the others cannot finish before all have started.
        let starting = Running::new(&shared);
        spawn_all(&shared, "mx-read", threads.min(shared.blocks_at_most()), buffered::run);
        drop(starting);
        Ok(Transfer { shared })
    }

    /// Bytes in place so far.
    pub fn progress_bytes(&self) -> u64 {
        self.shared.bytes_done.load(Ordering::Relaxed)
    }

    /// Starts no further reads; reports ERR_TRANSFER_ABORTED unless the outcome was reported before.
    pub fn abort(&self) {
        self.shared.report(Err(Shared::aborted_error()));
    }
}

fn summary(shared: &Shared) -> Summary {
    let files = shared
        .files
        .iter()
        .map(|file| FileSummary {
            buffered_bytes: file.buffered_bytes.load(Ordering::Relaxed),
            cached_bytes: file.cached_known.load(Ordering::Relaxed).then(|| file.cached_bytes.load(Ordering::Relaxed)),
            direct_bytes: file.direct_bytes.load(Ordering::Relaxed),
            direct_by_threads: file.direct_by_threads.load(Ordering::Relaxed),
            fallback: file.fallback(),
            unkept: file.unkept(),
        })
        .collect();
    Summary { files, reads: shared.reads() }
}

/// Counts a running thread; the last one to go finishes the transfer.
struct Running(Arc<Shared>);

impl Running {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.threads_running.fetch_add(1, Ordering::AcqRel);
        Running(shared.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.0.threads_running.fetch_sub(1, Ordering::AcqRel) == 1 {
            finish(&self.0);
        }
    }
}

/// Starts a thread of a transfer; what panics in it is reported as ERR_INTERNAL, never lost. A refusal by the system is the result.
pub fn spawn(shared: &Arc<Shared>, name: &str, body: impl FnOnce(&Arc<Shared>) + Send + 'static) -> Result<()> {
    let running = Running::new(shared);
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&running.0))).is_err() {
            running.0.report(Err(Error::new("ERR_INTERNAL", "a reading thread panicked")));
            // Reads of it may be in flight: the transfer never settles, so their memory is never handed back.
            std::mem::forget(running);
        }
    });
    started.map(|_| ()).map_err(|error| {
        let message = "no reading thread could be started: raise the limit on processes (ulimit -u, the cgroup's pids.max)";
        Error::new("ERR_TRANSFER_NO_THREAD", message).caused_by("pthread_create", &error)
    })
}

/// Starts up to `count` threads alike. A system that refuses some gets by with fewer; that none could be started is reported.
pub fn spawn_all(shared: &Arc<Shared>, name: &str, count: usize, body: impl Fn(&Arc<Shared>) + Copy + Send + 'static) {
    for started in 0..count {
        if let Err(error) = spawn(shared, name, body) {
            if started == 0 {
                shared.report(Err(error));
            }
            return;
        }
    }
}

/// Nothing is in flight any more.
fn finish(shared: &Arc<Shared>) {
    for file in &shared.files {
        file.close();
    }
    if !shared.failed() {
        let (expected, done) = (shared.layout.total_bytes, shared.bytes_done.load(Ordering::Acquire));
        if done == expected {
            shared.report(Ok(()));
        } else {
            shared.report(Err(Error::new("ERR_TRANSFER_INCOMPLETE", format!("{done} of {expected} bytes are in place"))
                .with("expectedBytes", expected)
                .with("actualBytes", done)));
        }
    }
    shared.run_epilogue();
}
