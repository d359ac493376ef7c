//! Why there is no ring, or none any more.

use std::io;

use crate::error::{Error, errno_name};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    operation: &'static str,
    pub errno: i32,
}

const SETUP: &str = "io_uring_setup";
const ENTER: &str = "io_uring_enter";

impl Refusal {
    pub fn of_setup(error: &io::Error) -> Self {
        Refusal { operation: SETUP, errno: error.raw_os_error().unwrap_or(libc::ENOSYS) }
    }

    pub fn of_enter(errno: i32) -> Self {
        Refusal { operation: ENTER, errno }
    }

    /// For the caller who asked for io_uring by name.
    pub fn error(&self) -> Error {
        let remedy = match self.errno {
            libc::EMFILE => "raise the limit on descriptors (ulimit -n)",
            libc::ENFILE => "raise the machine's limit on descriptors (fs.file-max)",
            libc::ENOMEM => "free memory, or raise the limit on locked memory (ulimit -l)",
            libc::EAGAIN | libc::EBUSY => "load again once the machine has memory for requests",
            _ => "allow io_uring (seccomp profile, kernel.io_uring_disabled)",
        };
        Error::new("ERR_TRANSFER_IO_URING_REFUSED", format!("{self} here: use the driver auto or pread, or {remedy}"))
            .with("errno", errno_name(self.errno))
            .with("operation", self.operation)
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let errno = errno_name(self.errno);
        match self.operation {
            SETUP => write!(f, "io_uring refused ({errno})"),
            operation => write!(f, "io_uring refused ({operation}: {errno})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_what_was_missing_and_its_remedy() {
        for (errno, remedy) in
            [(libc::EMFILE, "ulimit -n"), (libc::ENFILE, "fs.file-max"), (libc::ENOMEM, "ulimit -l"), (libc::EPERM, "seccomp")]
        {
            let error = Refusal { operation: SETUP, errno }.error();
            assert_eq!(error.code, "ERR_TRANSFER_IO_URING_REFUSED");
            assert!(error.message.contains(&errno_name(errno)) && error.message.contains(remedy), "{}", error.message);
        }
    }
}
