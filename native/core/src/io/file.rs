//! A file of a transfer: opened when its first block is due, closed after its last, and the same file from beginning to end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use super::layout::DirectAlign;
use super::sys::{self, Identity};
use crate::error::{Error, Result};

/// What the plan was made from; the transfer refuses any other state of the file.
#[derive(Clone, Debug)]
pub struct FileSpec {
    pub path: PathBuf,
    pub identity: Identity,
    pub align: DirectAlign,
}

/// The descriptors of an open file. Blocks hold them by `Arc`; the last one closes them.
pub struct OpenFile {
    buffered: OwnedFd,
    direct: OnceLock<std::result::Result<OwnedFd, i32>>,
}

impl OpenFile {
    pub fn buffered(&self) -> BorrowedFd<'_> {
        self.buffered.as_fd()
    }

    /// The O_DIRECT descriptor, opened at the first call; errno where the file system refuses.
    pub fn direct(&self, spec: &FileSpec) -> std::result::Result<BorrowedFd<'_>, i32> {
        let opened = self.direct.get_or_init(|| {
            let fd = sys::open_read(&spec.path, libc::O_DIRECT).map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
            let found = sys::identity(fd.as_fd()).map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
            if found == spec.identity { Ok(fd) } else { Err(libc::ESTALE) }
        });
        opened.as_ref().map(AsFd::as_fd).map_err(|errno| *errno)
    }
}

/// One file and what was done with it.
pub struct FileState {
    pub spec: FileSpec,
    open: Mutex<Option<Arc<OpenFile>>>,
    /// Blocks not yet in place.
    outstanding: AtomicUsize,
    pub buffered_bytes: AtomicU64,
    pub cached_bytes: AtomicU64,
    /// False when some buffered bytes were read without asking what was cached.
    pub cached_known: AtomicBool,
    pub direct_bytes: AtomicU64,
    /// Direct reads were made by threads.
    pub direct_by_threads: AtomicBool,
    /// Direct reads gave up on it, so that no other is asked to wait.
    pub direct_refused: AtomicBool,
    /// Its file system, where io_uring is not known to read directly there without fault.
    pub unsound: OnceLock<String>,
    fallback: Mutex<String>,
}

impl FileState {
    pub fn new(spec: FileSpec) -> Self {
        FileState {
            spec,
            open: Mutex::new(None),
            outstanding: AtomicUsize::new(0),
            buffered_bytes: AtomicU64::new(0),
            cached_bytes: AtomicU64::new(0),
            cached_known: AtomicBool::new(true),
            direct_bytes: AtomicU64::new(0),
            direct_by_threads: AtomicBool::new(false),
            direct_refused: AtomicBool::new(false),
            unsound: OnceLock::new(),
            fallback: Mutex::new(String::new()),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Arc<OpenFile>>> {
        self.open.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Opens the file, which must be in the state that the plan was made from.
    pub fn open(&self) -> Result<Arc<OpenFile>> {
        let path = self.spec.path.to_string_lossy().into_owned();
        let fd = sys::open_read(&self.spec.path, 0).map_err(|error| {
            Error::new("ERR_TRANSFER_OPEN", format!("cannot open {path} to read its tensors"))
                .with("file", path.clone())
                .caused_by("open", &error)
        })?;
        let found = sys::identity(fd.as_fd()).map_err(|error| {
            Error::new("ERR_TRANSFER_OPEN", format!("cannot stat {path}")).with("file", path.clone()).caused_by("fstat", &error)
        })?;
        self.compare(&found, "since its header was read")?;
        let file = Arc::new(OpenFile { buffered: fd, direct: OnceLock::new() });
        *self.lock() = Some(file.clone());
        Ok(file)
    }

    /// The open file; only while blocks of it are outstanding.
    pub fn opened(&self) -> Option<Arc<OpenFile>> {
        self.lock().clone()
    }

    pub fn add_blocks(&self, count: usize) {
        self.outstanding.fetch_add(count, Ordering::AcqRel);
    }

    /// One block is in place. After the last one the file is compared once more and closed; true then.
    pub fn finish_block(&self) -> Result<bool> {
        if self.outstanding.fetch_sub(1, Ordering::AcqRel) != 1 {
            return Ok(false);
        }
        let Some(file) = self.lock().take() else { return Ok(true) };
        let at_end = sys::identity(file.buffered()).and_then(|open| Ok((open, sys::identity_at(&self.spec.path)?)));
        match at_end {
            Ok((open, named)) => {
                self.compare(&open, "while it was read")?;
                self.compare(&named, "while it was read")?;
                Ok(true)
            }
            Err(error) => {
                let path = self.spec.path.to_string_lossy().into_owned();
                Err(Error::new(
                    "ERR_TRANSFER_FILE_CHANGED",
                    format!("{path} went away while it was read; load again once nobody writes it"),
                )
                .with("file", path)
                .caused_by("stat", &error))
            }
        }
    }

    /// Closes without looking: after a failure.
    pub fn close(&self) {
        self.lock().take();
    }

    fn compare(&self, found: &Identity, when: &str) -> Result<()> {
        require_same(&self.spec.identity, found, &self.spec.path.to_string_lossy(), when)
    }

    /// Notes why this file does not go the way `auto` prefers; the first reason stays.
    pub fn note_fallback(&self, reason: impl Into<String>) {
        let mut fallback = self.fallback.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if fallback.is_empty() {
            *fallback = reason.into();
        }
    }

    pub fn fallback(&self) -> String {
        self.fallback.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    pub fn read_error(&self, offset: u64, length: u64, operation: &'static str, errno: i32) -> Error {
        let path = self.spec.path.to_string_lossy().into_owned();
        Error::new("ERR_TRANSFER_READ", format!("cannot read {length} bytes at offset {offset} of {path}"))
            .with("file", path)
            .with("offset", offset)
            .with("length", length)
            .caused_by(operation, &std::io::Error::from_raw_os_error(errno))
    }

    pub fn unexpected_end(&self, offset: u64) -> Error {
        let path = self.spec.path.to_string_lossy().into_owned();
        let now = self.opened().and_then(|file| sys::identity(file.buffered()).ok()).map_or(offset, |identity| identity.size);
        Error::new(
            "ERR_TRANSFER_UNEXPECTED_END",
            format!("{path} ends at offset {offset}: it had {} bytes when its header was read and has {now} now", self.spec.identity.size),
        )
        .with("file", path)
        .with("offset", offset)
        .with("expectedBytes", self.spec.identity.size)
        .with("actualBytes", now)
    }
}

/// A file is the one, in the state, that was expected; `when` completes the sentence that tells otherwise. ERR_TRANSFER_FILE_CHANGED
pub fn require_same(expected: &Identity, found: &Identity, path: &str, when: &str) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    let what = if (found.dev, found.ino) != (expected.dev, expected.ino) {
        "was replaced by another file".to_owned()
    } else if found.size != expected.size {
        format!("changed its size from {} to {} bytes", expected.size, found.size)
    } else {
        "was written".to_owned()
    };
    Err(Error::new("ERR_TRANSFER_FILE_CHANGED", format!("{path} {what} {when}; load again once nobody writes it"))
        .with("file", path)
        .with("expectedBytes", expected.size)
        .with("actualBytes", found.size))
}
