//! A file that NIXL reads: its own descriptor, open as long as a registration needs it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

use crate::error::{Error, Result};
use crate::io::identity::{Identity, Sight, Unkept};

pub struct HeldFile {
    fd: OwnedFd,
    name: String,
    /// As it was when it was opened.
    identity: Identity,
    unkept: Unkept,
}

impl HeldFile {
    /// Opens a file; `planned` is the state that a plan was made from. ERR_TRANSFER_OPEN,
    /// ERR_TRANSFER_FILE_CHANGED
    pub fn open(path: &Path, planned: Option<&Identity>) -> Result<Self> {
        let name = path.to_string_lossy().into_owned();
        let (fd, sight) = Sight::open(path).map_err(|(operation, error)| {
            let message = format!("cannot {operation} {name}");
            Error::new("ERR_TRANSFER_OPEN", message).with("file", name.as_str()).caused_by(operation, &error)
        })?;
        let unkept = planned.map(|planned| planned.require_at_open(fd.as_fd(), &sight, &name)).transpose()?.unwrap_or_default();
        Ok(HeldFile { identity: Identity::new(fd.as_fd(), sight, &[]), fd, name, unkept })
    }

    /// A duplicate of somebody else's descriptor, who may close it at once. ERR_TRANSFER_OPEN
    pub fn duplicate(fd: i32) -> Result<Self> {
        let name = std::fs::read_link(format!("/proc/self/fd/{fd}"))
            .map_or_else(|_| format!("descriptor {fd}"), |path| path.to_string_lossy().into_owned());
        // SAFETY: a number that is no open descriptor is an error and nothing else.
        let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
        if copy < 0 {
            let message = format!("the descriptor {fd} cannot be duplicated");
            return Err(Error::new("ERR_TRANSFER_OPEN", message).with("file", name).caused_by("fcntl", &std::io::Error::last_os_error()));
        }
        // SAFETY: the descriptor was just made and belongs to nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(copy) };
        let sight = look(fd.as_fd(), &name)?;
        Ok(HeldFile { identity: Identity::new(fd.as_fd(), sight, &[]), fd, name, unkept: Unkept::default() })
    }

    pub fn number(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Path where it is known.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes when it was opened.
    pub fn size(&self) -> u64 {
        self.identity.size()
    }

    /// What of the planned identity its file system did not keep.
    pub fn unkept(&self) -> Unkept {
        self.unkept
    }

    /// The file is what it was when it was opened; plugins take a read that ends early for a whole
    /// one. ERR_TRANSFER_FILE_CHANGED
    pub fn require_unchanged(&self) -> Result<()> {
        self.identity.require_same(&look(self.fd.as_fd(), &self.name)?, &self.name).map(drop)
    }
}

fn look(fd: BorrowedFd<'_>, name: &str) -> Result<Sight> {
    Sight::of(fd)
        .map_err(|error| Error::new("ERR_TRANSFER_OPEN", format!("cannot stat {name}")).with("file", name).caused_by("fstat", &error))
}
