//! A file of a checkpoint while its header or index is read: opened, identified, read at offsets,
//! closed at once.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use super::{MAX_SAFE_INTEGER, in_file, printable};
use crate::error::{Error, Result};
use crate::io::cache_use::{CacheUse, cache_use};
use crate::io::identity::{Identity, Sight};
use crate::sys::{self, Stat};

/// What direct I/O asks of a file, in bytes; 0 where the kernel does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DioAlign {
    pub offset: u32,
    pub memory: u32,
}

/// An open regular file.
pub struct CheckpointFile<'p> {
    path: &'p str,
    fd: OwnedFd,
    sight: Sight,
}

impl<'p> CheckpointFile<'p> {
    /// Refuses everything that is no regular file.
    pub fn open(path: &'p str) -> Result<Self> {
        let (fd, sight) = Sight::open(Path::new(path)).map_err(|(operation, error)| match operation {
            "open" => open_error(path, &error),
            _ => failed(path, operation, &error),
        })?;
        let kind = match sight.stat.kind {
            libc::S_IFREG => None,
            libc::S_IFDIR => Some("a folder"),
            libc::S_IFIFO => Some("a named pipe"),
            libc::S_IFCHR | libc::S_IFBLK => Some("a device"),
            _ => Some("no regular file"),
        };
        if let Some(kind) = kind {
            return Err(in_file(
                Error::new("ERR_CHECKPOINT_NOT_REGULAR", format!("this is {kind}, where a file of a checkpoint should be")),
                path,
            ));
        }
        let size = sight.stat.size;
        if size > MAX_SAFE_INTEGER {
            let message = format!("the file has {size} bytes, more than the 2^53 - 1 that a JavaScript number holds exactly");
            return Err(in_file(Error::new("ERR_CHECKPOINT_UNREPRESENTABLE", message), path));
        }
        Ok(CheckpointFile { path, fd, sight })
    }

    /// Bytes when it was opened.
    pub fn size(&self) -> u64 {
        self.sight.stat.size
    }

    /// What tells the file again, whose first bytes are `header`.
    pub fn identity(&self, header: &[u8]) -> Identity {
        Identity::new(self.fd.as_fd(), self.sight, header)
    }

    /// The bytes `[offset, offset + length)`.
    pub fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.read_to(&mut bytes, offset, length)?;
        Ok(bytes)
    }

    /// Appends the bytes `[offset, offset + length)`.
    pub fn read_to(&self, bytes: &mut Vec<u8>, offset: u64, length: usize) -> Result<()> {
        let kept = bytes.len();
        bytes.try_reserve_exact(length).map_err(|_| failed(self.path, "malloc", &io::Error::from_raw_os_error(libc::ENOMEM)))?;
        bytes.resize(kept + length, 0);
        sys::pread_full(self.fd.as_fd(), &mut bytes[kept..], offset).map_err(|(done, cause)| {
            let at = offset + done as u64;
            let Some(cause) = cause else {
                let size = self.size();
                let message =
                    format!("the file ended at offset {at} while its header was read, at {size} bytes before: it was cut meanwhile");
                let error = Error::new("ERR_CHECKPOINT_FILE_TRUNCATED", message).with("offset", at);
                return in_file(error.with("expectedBytes", size).with("actualBytes", at), self.path);
            };
            let message = format!("cannot read {} bytes at offset {at}", length - done);
            let read = Error::new("ERR_CHECKPOINT_IO", message).with("offset", at).with("length", length - done);
            in_file(read.caused_by("pread", &cause), self.path)
        })
    }

    /// What direct I/O asks of this file, and what reads of it take of the page cache.
    pub fn ways(&self) -> (DioAlign, CacheUse) {
        let fd = self.fd.as_fd();
        let direct = sys::direct_io(fd);
        let (offset, memory) = direct.align();
        let Stat { dev, size, .. } = self.sight.stat;
        (DioAlign { offset, memory }, cache_use(fd, Path::new(self.path), dev, size, direct))
    }
}

fn open_error(path: &str, error: &io::Error) -> Error {
    let Some(errno @ (libc::ENOENT | libc::ENOTDIR)) = error.raw_os_error() else { return failed(path, "open", error) };
    let message = match std::fs::read_link(path) {
        Ok(target) => format!("this symbolic link leads to {}, which is not there", printable(&target.to_string_lossy())),
        Err(_) => "no such file".to_owned(),
    };
    in_file(Error::new("ERR_CHECKPOINT_NOT_FOUND", message).named_by("open", errno), path)
}

fn failed(path: &str, operation: &'static str, error: &io::Error) -> Error {
    if let Some(errno @ (libc::EACCES | libc::EPERM)) = error.raw_os_error() {
        let refused = Error::new("ERR_CHECKPOINT_PERMISSION", "this user may not read this file");
        return in_file(refused.named_by(operation, errno), path);
    }
    in_file(Error::new("ERR_CHECKPOINT_IO", "this file cannot be read").caused_by(operation, error), path)
}
