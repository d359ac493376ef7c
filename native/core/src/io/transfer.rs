//! One batch of reads from start to settled.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::engine::{Uring, Wrap};
use super::file::{FileSpec, FileState};
use super::identity::Unkept;
use super::lanes::buffered;
use super::layout::{Layout, Piece};
use super::settings::{Driver, Settings};
use super::shared::{Done, Shared};
use super::threads::{Running, spawn_all};
use crate::arena::Pin;
use crate::error::{Error, Result};

/// What became of one file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileSummary {
    pub buffered_bytes: u64,
    /// Of the buffered bytes, those that the page cache held; None where nobody asked.
    pub cached_bytes: Option<u64>,
    pub direct_bytes: u64,
    /// Direct reads were made by threads: io_uring is refused, or not known to be sound on this
    /// file system.
    pub direct_by_threads: bool,
    pub fallback: String,
    pub unkept: Unkept,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    pub files: Vec<FileSummary>,
    pub reads: u64,
}

/// A transfer in flight. Dropping it does not stop it: its threads hold what they need, the pins
/// included.
pub struct Transfer {
    shared: Arc<Shared>,
}

impl Transfer {
    /// Starts reading. `done` is called exactly once, with the first failure or the summary;
    /// `settled` once, after `done` and after the last read has returned. Both run on a thread of
    /// the transfer. `pins` hold the memory until then. `wrap` is given every engine that makes the
    /// reads.
    ///
    /// # Errors
    /// ERR_TRANSFER_IO_URING_REFUSED when io_uring was asked for by name and is refused; then
    /// neither callback is called.
    pub fn start(
        settings: Settings,
        files: Vec<FileSpec>,
        pieces: Vec<Piece>,
        wrap: Wrap,
        pins: Vec<Pin>,
        done: impl FnOnce(Result<Summary>) + Send + 'static,
        settled: impl FnOnce() + Send + 'static,
    ) -> Result<Transfer> {
        if settings.driver == Driver::IoUring {
            Uring::new(settings.queue_depth).map_err(|refusal| refusal.error())?;
        }
        let layout = Layout::new(pieces.into_iter());
        let files = files.into_iter().map(FileState::new).collect();
        let report: Done = Box::new(move |shared, outcome| done(outcome.map(|()| summary(shared))));
        let epilogue = Box::new(move || {
            drop(pins);
            settled();
        });
        let threads = settings.threads.max(1);
        let shared = Arc::new(Shared::new(settings, layout, files, wrap, report, epilogue));
        // This guard counts as a thread, so that the last of the others cannot finish before all
        // have started.
        let starting = Running::new(&shared);
        spawn_all(&shared, "mx-read", threads.min(shared.blocks_at_most()), buffered::run);
        drop(starting);
        Ok(Transfer { shared })
    }

    /// Bytes in place so far.
    pub fn progress_bytes(&self) -> u64 {
        self.shared.bytes_done()
    }

    /// Starts no further reads; reports ERR_TRANSFER_ABORTED unless the outcome was reported
    /// before.
    pub fn abort(&self) {
        self.shared.conclude(Err(Error::new("ERR_TRANSFER_ABORTED", "the transfer was aborted")));
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
