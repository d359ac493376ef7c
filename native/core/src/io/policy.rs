//! Which way a part of a file is read, and why: from what the caller chose, what the page cache
//! holds, and what the kernel refused.

use super::engine::Refusal;
use super::file::{FileSpec, OpenFile};
use super::file_systems;
use super::queue::Hint;
use super::residency::Residency;
use super::settings::{Driver, MIN_DIRECT_BYTES};
use crate::error::{Error, Result, errno_name};

/// The lane of a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    Buffered(Hint),
    Direct,
}

/// `direct`: the file can be read directly.
pub fn route(driver: Driver, residency: Residency, direct: bool, bytes: u64) -> Route {
    let direct = direct && bytes >= MIN_DIRECT_BYTES;
    match (driver, residency) {
        (Driver::IoUring, _) => Route::Direct,
        (_, Residency::Cached) => Route::Buffered(Hint::Cached),
        (_, Residency::Partly) => Route::Buffered(Hint::Uncached),
        (Driver::Auto, Residency::Cold) if direct => Route::Direct,
        (_, Residency::Cold) => Route::Buffered(Hint::Uncached),
        (Driver::Auto, Residency::Unknown) if direct => Route::Buffered(Hint::Unknown),
        (_, Residency::Unknown) => Route::Buffered(Hint::Unasked),
    }
}

/// How a file can be read around the page cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectAccess {
    /// Not at all, for this reason.
    Refused(String),
    /// By threads only: io_uring is not known to be sound on this file system.
    ThreadsOnly(String),
    Any,
}

/// Asks the kernel. Where io_uring was asked for by name, what `auto` would get around is an error.
pub fn direct_access(driver: Driver, spec: &FileSpec, open: &OpenFile) -> Result<DirectAccess> {
    let path = || spec.path.to_string_lossy().into_owned();
    let named = driver == Driver::IoUring;
    let system = file_systems::type_of(open.buffered());
    let unsound = (!file_systems::sound_with_io_uring(system)).then(|| file_systems::name(system));
    if named && let Some(name) = &unsound {
        let message = format!(
            "the driver io_uring is not known to read {} rightly: on {name} the kernel may report a whole read over wrong bytes; \
             use auto or pread",
            path()
        );
        return Err(Error::new("ERR_TRANSFER_IO_URING_UNSOUND", message).with("file", path()).with("fileSystem", name.clone()));
    }
    let errno = match (open.direct(spec), unsound) {
        (Ok(_), None) => return Ok(DirectAccess::Any),
        (Ok(_), Some(system)) => return Ok(DirectAccess::ThreadsOnly(system)),
        (Err(errno), _) => errno,
    };
    let cannot_open = |what: &str| {
        let cause = std::io::Error::from_raw_os_error(errno);
        Err(Error::new("ERR_TRANSFER_OPEN", format!("cannot open {}{what}", path())).with("file", path()).caused_by("open", &cause))
    };
    match errno {
        libc::EMFILE | libc::ENFILE => cannot_open(""),
        libc::ESTALE => {
            let message = format!("{} was replaced while it was opened; load again once nobody writes it", path());
            Err(Error::new("ERR_TRANSFER_FILE_CHANGED", message).with("file", path()))
        }
        libc::EINVAL | libc::EOPNOTSUPP if named => {
            let errno = errno_name(errno);
            let message = format!(
                "the driver io_uring reads with O_DIRECT, which the file system of {} refuses ({errno}); use auto or pread",
                path()
            );
            Err(Error::new("ERR_TRANSFER_DIRECT_REFUSED", message).with("file", path()).with("errno", errno))
        }
        _ if named => cannot_open(" for direct reads"),
        _ => Ok(DirectAccess::Refused(format!("O_DIRECT refused ({})", errno_name(errno)))),
    }
}

/// A direct read that failed with this errno says that the way is refused, or that there is no
/// memory to hold pages for it: ordinary reads need neither.
pub fn refuses_direct(errno: i32) -> bool {
    matches!(errno, libc::EINVAL | libc::EOPNOTSUPP | libc::EAGAIN | libc::ENOMEM)
}

pub fn refused_direct(errno: i32) -> String {
    format!("direct read refused ({})", errno_name(errno))
}

pub fn unsound(system: &str) -> String {
    format!("io_uring is not known to be sound on {system}: direct reads by threads")
}

pub fn without_ring(refusal: Refusal) -> String {
    format!("{refusal}: direct reads by threads")
}

pub const CACHE_NOT_TOLD: &str = "the file system does not tell what is cached";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_one_way() {
        let long = MIN_DIRECT_BYTES;
        let buffered = |hint| Route::Buffered(hint);
        for (driver, residency, direct, bytes, expected) in [
            (Driver::IoUring, Residency::Cached, true, 1, Route::Direct),
            (Driver::Pread, Residency::Cached, false, long, buffered(Hint::Cached)),
            (Driver::Pread, Residency::Cold, false, long, buffered(Hint::Uncached)),
            (Driver::Pread, Residency::Unknown, false, long, buffered(Hint::Unasked)),
            (Driver::Auto, Residency::Cached, true, long, buffered(Hint::Cached)),
            (Driver::Auto, Residency::Partly, true, long, buffered(Hint::Uncached)),
            (Driver::Auto, Residency::Cold, true, long, Route::Direct),
            (Driver::Auto, Residency::Cold, true, long - 1, buffered(Hint::Uncached)),
            (Driver::Auto, Residency::Cold, false, long, buffered(Hint::Uncached)),
            (Driver::Auto, Residency::Unknown, true, long, buffered(Hint::Unknown)),
            (Driver::Auto, Residency::Unknown, true, long - 1, buffered(Hint::Unasked)),
            (Driver::Auto, Residency::Unknown, false, long, buffered(Hint::Unasked)),
        ] {
            assert_eq!(route(driver, residency, direct, bytes), expected, "{driver:?} {residency:?} {direct} {bytes}");
        }
    }
}
