//! Which file it is and in which state, and whether it still is: as far as its file system keeps
//! what tells it.
//!
//! Local file systems and those of the NFS kind keep device, inode number and time of modification
//! exactly. Others do not: many FUSE servers number files anew at each look-up, some give the time
//! of the question as the time of modification, some forget its fraction. There a file counts as
//! the same when what differs is of that kind and the header, read from the open descriptor itself,
//! is the one that the plan was made from; all reads then go through that descriptor, so that
//! header and tensors are of one file.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

use super::file_systems;
use crate::error::{Error, Result};
use crate::memory::zeroed;
use crate::sys::{self, Stat};

/// What was seen of a file at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    pub stat: Stat,
    /// The time of modification lies between the moment before and the moment after the question.
    pub written_now: bool,
}

impl Sight {
    /// Opens a file and looks at it.
    pub fn open(path: &Path) -> std::result::Result<(OwnedFd, Self), (&'static str, io::Error)> {
        let before = now_ns();
        let fd = sys::open_read(path, 0).map_err(|error| ("open", error))?;
        let stat = sys::stat(fd.as_fd()).map_err(|error| ("fstat", error))?;
        Ok((fd, Sight::new(stat, before)))
    }

    pub fn of(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let before = now_ns();
        Ok(Sight::new(sys::stat(fd)?, before))
    }

    /// Of the open file and of what its path names now.
    pub fn both(fd: BorrowedFd<'_>, path: &Path) -> io::Result<(Self, Self)> {
        let before = now_ns();
        let open = sys::stat(fd)?;
        // A file system that keeps what it told for a while tells the same time again.
        Ok((Sight::new(open, before), Sight::new(sys::stat_at(path)?, before)))
    }

    fn new(stat: Stat, before_ns: i64) -> Self {
        Sight { stat, written_now: (before_ns..=now_ns()).contains(&stat.mtime_ns) }
    }
}

fn now_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

/// The start of a file, to be known again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderDigest {
    pub bytes: u64,
    /// The first 8 bytes of its SHA-256.
    pub digest: u64,
}

impl HeaderDigest {
    pub fn of(header: &[u8]) -> Self {
        let digest = Sha256::digest(header);
        let first = digest.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        HeaderDigest { bytes: header.len() as u64, digest: first }
    }

    fn is_of(&self, fd: BorrowedFd<'_>) -> io::Result<bool> {
        let mut header = zeroed(self.bytes as usize, "a header").map_err(|_| io::Error::from_raw_os_error(libc::ENOMEM))?;
        match sys::pread_full(fd, &mut header, 0) {
            Ok(()) => Ok(HeaderDigest::of(&header) == *self),
            Err((_, None)) => Ok(false),
            Err((_, Some(error))) => Err(error),
        }
    }
}

/// What of a file's identity its file system did not keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unkept {
    pub inode: bool,
    pub time: bool,
}

impl std::ops::BitOrAssign for Unkept {
    fn bitor_assign(&mut self, other: Self) {
        self.inode |= other.inode;
        self.time |= other.time;
    }
}

/// The file that a plan was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub sight: Sight,
    /// Only on file systems that are not known to keep the rest.
    pub header: Option<HeaderDigest>,
}

impl Identity {
    /// Of an open file whose first bytes are `header`.
    pub fn new(fd: BorrowedFd<'_>, sight: Sight, header: &[u8]) -> Self {
        let kept = file_systems::keeps_identity(file_systems::type_of(fd));
        Identity { sight, header: (!kept).then(|| HeaderDigest::of(header)) }
    }

    pub fn size(&self) -> u64 {
        self.sight.stat.size
    }

    /// A file just opened is the one. ERR_TRANSFER_FILE_CHANGED
    pub fn require_at_open(&self, fd: BorrowedFd<'_>, found: &Sight, path: &str) -> Result<Unkept> {
        let when = "since its header was read";
        let unkept = self.compare(found, path, when)?;
        let Some(header) = self.header.filter(|_| unkept != Unkept::default()) else { return Ok(unkept) };
        match header.is_of(fd) {
            Ok(true) => Ok(unkept),
            Ok(false) => Err(changed("was replaced by another file", self, found, path, when)),
            Err(error) => Err(changed("cannot be read again", self, found, path, when).caused_by("pread", &error)),
        }
    }

    /// The file that was read is still the one, and so is what its path names. Where inode numbers
    /// are not kept, the path says nothing about them. ERR_TRANSFER_FILE_CHANGED
    pub fn require_at_end(&self, fd: BorrowedFd<'_>, named: &Path, path: &str) -> Result<Unkept> {
        let (open, named) = Sight::both(fd, named).map_err(|error| {
            let message = format!("{path} went away while it was read; load again once nobody writes it");
            Error::new("ERR_TRANSFER_FILE_CHANGED", message).with("file", path).caused_by("stat", &error)
        })?;
        let mut unkept = self.require_same(&open, path)?;
        unkept |= self.require_same(&named, path)?;
        Ok(unkept)
    }

    /// An open file is still in the state it was in. ERR_TRANSFER_FILE_CHANGED
    pub fn require_same(&self, found: &Sight, path: &str) -> Result<Unkept> {
        self.compare(found, path, "while it was read")
    }

    /// What differs is of the kind that the file system does not keep. `when` completes the
    /// sentence that tells otherwise.
    fn compare(&self, found: &Sight, path: &str, when: &str) -> Result<Unkept> {
        let (expected, seen) = (self.sight.stat, found.stat);
        let strict = self.header.is_none();
        let inode = (seen.dev, seen.ino) != (expected.dev, expected.ino);
        let time = seen.mtime_ns != expected.mtime_ns;
        let what = if inode && strict {
            "was replaced by another file".to_owned()
        } else if seen.size != expected.size {
            format!("changed its size from {} to {} bytes", expected.size, seen.size)
        } else if time && (strict || !(same_cut_off(seen.mtime_ns, expected.mtime_ns) || (self.sight.written_now && found.written_now))) {
            "was written".to_owned()
        } else {
            return Ok(Unkept { inode, time });
        };
        Err(changed(&what, self, found, path, when))
    }
}

fn changed(what: &str, expected: &Identity, found: &Sight, path: &str, when: &str) -> Error {
    Error::new("ERR_TRANSFER_FILE_CHANGED", format!("{path} {what} {when}; load again once nobody writes it"))
        .with("file", path)
        .with("expectedBytes", expected.size())
        .with("actualBytes", found.stat.size)
}

/// Units in which file systems keep times, in nanoseconds: SMB, microseconds, milliseconds,
/// seconds, FAT.
const UNITS_NS: [i64; 5] = [100, 1_000, 1_000_000, 1_000_000_000, 2_000_000_000];

/// One of the times is the other without its fraction: the inode was dropped from memory in
/// between, which had it exactly.
fn same_cut_off(one_ns: i64, other_ns: i64) -> bool {
    let (less, more) = (one_ns.min(other_ns), one_ns.max(other_ns));
    UNITS_NS.iter().any(|unit| less == more - more.rem_euclid(*unit))
}

/// Identity of a file in numbers, for JavaScript to keep: device, inode, nanoseconds, whether
/// written now, bytes and digest of the header.
pub const IDENTITY_WORDS: usize = 6;

impl Identity {
    pub fn words(&self) -> [u64; IDENTITY_WORDS] {
        let Sight { stat, written_now } = self.sight;
        let header = self.header.unwrap_or(HeaderDigest { bytes: 0, digest: 0 });
        [stat.dev, stat.ino, stat.mtime_ns as u64, u64::from(written_now), header.bytes, header.digest]
    }

    pub fn from_words([dev, ino, mtime, written_now, bytes, digest]: [u64; IDENTITY_WORDS], size: u64) -> Self {
        let stat = Stat { dev, ino, size, mtime_ns: mtime as i64, kind: libc::S_IFREG };
        Identity { sight: Sight { stat, written_now: written_now != 0 }, header: (bytes != 0).then_some(HeaderDigest { bytes, digest }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn sight(ino: u64, size: u64, mtime_ns: i64, written_now: bool) -> Sight {
        Sight { stat: Stat { dev: 1, ino, size, mtime_ns, kind: libc::S_IFREG }, written_now }
    }

    fn identity(sight: Sight, kept: bool) -> Identity {
        Identity { sight, header: (!kept).then(|| HeaderDigest::of(b"header")) }
    }

    fn verdict(expected: Identity, found: Sight) -> std::result::Result<(bool, bool), String> {
        let outcome = expected.compare(&found, "/f", "now");
        outcome.map(|Unkept { inode, time }| (inode, time)).map_err(|error| error.message.split(';').next().unwrap_or_default().to_owned())
    }

    #[test]
    fn a_file_system_that_keeps_all_is_held_to_all() {
        let planned = identity(sight(7, 100, 12 * SECOND + 345, true), true);
        assert_eq!(verdict(planned, sight(7, 100, 12 * SECOND + 345, false)), Ok((false, false)));
        assert_eq!(verdict(planned, sight(8, 100, 12 * SECOND + 345, false)), Err("/f was replaced by another file now".to_owned()));
        assert_eq!(
            verdict(planned, sight(7, 99, 12 * SECOND + 345, false)),
            Err("/f changed its size from 100 to 99 bytes now".to_owned())
        );
        assert_eq!(verdict(planned, sight(7, 100, 12 * SECOND, false)), Err("/f was written now".to_owned()));
        assert_eq!(verdict(planned, sight(7, 100, 13 * SECOND, true)), Err("/f was written now".to_owned()));
    }

    #[test]
    fn elsewhere_a_new_inode_number_and_a_time_cut_off_are_no_change() {
        let planned = identity(sight(7, 100, 12 * SECOND + 345_678_912, false), false);
        assert_eq!(verdict(planned, sight(8, 100, 12 * SECOND + 345_678_912, false)), Ok((true, false)));
        assert_eq!(verdict(planned, sight(7, 100, 12 * SECOND, false)), Ok((false, true)));
        assert_eq!(verdict(planned, sight(7, 100, 12 * SECOND + 345_678_900, false)), Ok((false, true)));
        assert_eq!(verdict(planned, sight(7, 100, 12 * SECOND + 345_000_000, false)), Ok((false, true)));
        assert_eq!(verdict(planned, sight(7, 100, 12 * SECOND + 345_678_913, false)), Err("/f was written now".to_owned()));
        assert_eq!(verdict(planned, sight(7, 100, 13 * SECOND, false)), Err("/f was written now".to_owned()));
        assert_eq!(verdict(planned, sight(8, 101, 12 * SECOND, false)), Err("/f changed its size from 100 to 101 bytes now".to_owned()));
    }

    #[test]
    fn a_time_that_is_the_clock_twice_is_no_change() {
        let planned = identity(sight(7, 100, 12 * SECOND + 1, true), false);
        assert_eq!(verdict(planned, sight(7, 100, 15 * SECOND + 2, true)), Ok((false, true)));
        assert_eq!(verdict(planned, sight(7, 100, 15 * SECOND + 2, false)), Err("/f was written now".to_owned()));
        let calm = identity(sight(7, 100, 12 * SECOND + 1, false), false);
        assert_eq!(verdict(calm, sight(7, 100, 15 * SECOND + 2, true)), Err("/f was written now".to_owned()));
    }

    #[test]
    fn a_file_with_another_header_was_replaced() {
        let path = std::env::temp_dir().join(format!("mx-identity-{}", std::process::id()));
        std::fs::write(&path, b"header and more").expect("write");
        let (fd, found) = Sight::open(&path).expect("open");
        let other_inode = |header: &[u8]| {
            let mut planned = Identity { sight: found, header: Some(HeaderDigest::of(header)) };
            planned.sight.stat.ino += 1;
            planned
        };
        let same = other_inode(b"header").require_at_open(fd.as_fd(), &found, "/f");
        assert_eq!(same.expect("the same file"), Unkept { inode: true, time: false });
        let replaced = other_inode(b"Header").require_at_open(fd.as_fd(), &found, "/f").expect_err("another file");
        assert!(replaced.message.contains("was replaced by another file since its header was read"), "{}", replaced.message);
        let longer = other_inode(b"header and more than there is").require_at_open(fd.as_fd(), &found, "/f").expect_err("another file");
        assert_eq!(longer.code, "ERR_TRANSFER_FILE_CHANGED");
        std::fs::remove_file(&path).expect("remove");
    }

    #[test]
    fn an_identity_survives_its_words() {
        for kept in [true, false] {
            let one = identity(sight(u64::MAX, 100, -5, true), kept);
            assert_eq!(Identity::from_words(one.words(), 100), one);
        }
    }
}
