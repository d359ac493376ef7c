//! A file of a transfer: opened when its first block is due, closed after its last, and the same
//! file from beginning to end.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use super::align::DirectAlign;
use super::identity::{Identity, Sight, Unkept};
use crate::error::{Error, Result};
use crate::sys;

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
        let opened = self.direct.get_or_init(|| open_direct(self.buffered(), &spec.path));
        opened.as_ref().map(AsFd::as_fd).map_err(|errno| *errno)
    }
}

/// Opens an open file once more, with O_DIRECT; the errno where that is refused.
pub fn open_direct(open: BorrowedFd<'_>, path: &Path) -> std::result::Result<OwnedFd, i32> {
    // The very file that is open, whatever its path names by now.
    match sys::open_read(Path::new(&format!("/proc/self/fd/{}", open.as_raw_fd())), libc::O_DIRECT) {
        Ok(fd) => Ok(fd),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Err(libc::EINVAL),
        Err(_) => open_direct_by_path(open, path),
    }
}

/// Where /proc is not mounted, or may not be used.
fn open_direct_by_path(open: BorrowedFd<'_>, path: &Path) -> std::result::Result<OwnedFd, i32> {
    let errno = |error: std::io::Error| error.raw_os_error().unwrap_or(libc::EIO);
    let fd = sys::open_read(path, libc::O_DIRECT).map_err(errno)?;
    let same = sys::stat(fd.as_fd()).map_err(errno)? == sys::stat(open).map_err(errno)?;
    if same { Ok(fd) } else { Err(libc::ESTALE) }
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
    unkept: Mutex<Unkept>,
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
            unkept: Mutex::new(Unkept::default()),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Arc<OpenFile>>> {
        self.open.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Opens the file, which must be in the state that the plan was made from.
    pub fn open(&self) -> Result<Arc<OpenFile>> {
        let path = self.spec.path.to_string_lossy().into_owned();
        let (fd, found) = Sight::open(&self.spec.path).map_err(|(operation, error)| {
            let message = format!("cannot {operation} {path} to read its tensors");
            Error::new("ERR_TRANSFER_OPEN", message).with("file", path.clone()).caused_by(operation, &error)
        })?;
        self.note_unkept(self.spec.identity.require_at_open(fd.as_fd(), &found, &path)?);
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

    /// One block is in place. After the last one the file is compared once more and closed; true
    /// then.
    pub fn finish_block(&self) -> Result<bool> {
        if self.outstanding.fetch_sub(1, Ordering::AcqRel) != 1 {
            return Ok(false);
        }
        let Some(file) = self.lock().take() else { return Ok(true) };
        let path = self.spec.path.to_string_lossy();
        self.note_unkept(self.spec.identity.require_at_end(file.buffered(), &self.spec.path, &path)?);
        Ok(true)
    }

    /// Closes without looking: after a failure.
    pub fn close(&self) {
        self.lock().take();
    }

    fn note_unkept(&self, unkept: Unkept) {
        *self.unkept.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) |= unkept;
    }

    /// What of the file's identity its file system did not keep.
    pub fn unkept(&self) -> Unkept {
        *self.unkept.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
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
        let now = self.opened().and_then(|file| sys::stat(file.buffered()).ok()).map_or(offset, |stat| stat.size);
        Error::new(
            "ERR_TRANSFER_UNEXPECTED_END",
            format!(
                "{path} ends at offset {offset}: it had {} bytes when its header was read and has {now} now",
                self.spec.identity.size()
            ),
        )
        .with("file", path)
        .with("offset", offset)
        .with("expectedBytes", self.spec.identity.size())
        .with("actualBytes", now)
    }
}
