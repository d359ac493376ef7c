//! A file that NIXL reads: its own descriptor, open as long as a registration needs it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

use crate::error::{Error, Result};
use crate::io::file::require_same;
use crate::io::sys::{self, Identity};

pub struct HeldFile {
    fd: OwnedFd,
    name: String,
    identity: Identity,
}

impl HeldFile {
    /// ERR_TRANSFER_OPEN
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.to_string_lossy().into_owned();
        let fd = sys::open_read(path, 0).map_err(|error| {
            Error::new("ERR_TRANSFER_OPEN", format!("cannot open {name}")).with("file", name.as_str()).caused_by("open", &error)
        })?;
        Self::over(fd, name)
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
        Self::over(unsafe { OwnedFd::from_raw_fd(copy) }, name)
    }

    fn over(fd: OwnedFd, name: String) -> Result<Self> {
        let identity = identity(fd.as_fd(), &name)?;
        Ok(HeldFile { fd, name, identity })
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
        self.identity.size
    }

    /// The file is what it was when it was opened; plugins take a read that ends early for a whole one. ERR_TRANSFER_FILE_CHANGED
    pub fn require_unchanged(&self) -> Result<()> {
        self.compare(&self.identity, "while it was read")
    }

    /// The file is in the state that a plan was made from. ERR_TRANSFER_FILE_CHANGED
    pub fn require(&self, planned: &Identity) -> Result<()> {
        self.compare(planned, "since its header was read")
    }

    fn compare(&self, expected: &Identity, when: &str) -> Result<()> {
        require_same(expected, &identity(self.fd.as_fd(), &self.name)?, &self.name, when)
    }
}

fn identity(fd: BorrowedFd<'_>, name: &str) -> Result<Identity> {
    sys::identity(fd)
        .map_err(|error| Error::new("ERR_TRANSFER_OPEN", format!("cannot stat {name}")).with("file", name).caused_by("fstat", &error))
}
