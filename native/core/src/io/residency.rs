//! What the page cache holds of a file, so that cached parts are copied and the rest is read around
//! the cache.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use crate::sys;
use crate::vmm::HUGE_PAGE_BYTES;

/// Finest step at which cached and uncached parts are told apart; one direct read.
pub const STEP_BYTES: u64 = HUGE_PAGE_BYTES as u64;
/// Of a short range this part at least must be cached for the rest to be read through the cache as
/// well: an eighth.
const PARTLY_SHARE: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residency {
    /// Every page is in the page cache.
    Cached,
    /// All of it is short, and a good part is there: what its header's reader has read ahead,
    /// mostly. Reading on brings the rest; behind a long file's head it would read ahead what
    /// direct reads bring anyway.
    Partly,
    /// None is, or too few to matter.
    Cold,
    /// The kernel does not tell (cachestat needs Linux 6.5, and ownership or write permission); a
    /// read that refuses to wait will.
    Unknown,
}

/// A file range, and the residency of all of it.
pub type Stretch = (Range<u64>, Residency);

/// Splits a file range into stretches of one residency, longest first guess: one question where the
/// whole range is alike.
pub fn classify(fd: BorrowedFd<'_>, range: Range<u64>) -> Vec<Stretch> {
    classify_by(range, sys::page_bytes() as u64, |begin, end| sys::cached_pages(fd, begin, end - begin))
}

/// `cached_pages` gives the number of pages of `page` bytes in a range that the page cache holds.
fn classify_by(range: Range<u64>, page: u64, cached_pages: impl Fn(u64, u64) -> io::Result<u64>) -> Vec<Stretch> {
    let mut out: Vec<Stretch> = Vec::new();
    let mut todo = vec![range.clone()];
    while let Some(part) = todo.pop() {
        let pages = part.end.div_ceil(page) - part.start / page;
        let found = match cached_pages(part.start, part.end) {
            Ok(cached) if cached >= pages => Residency::Cached,
            Ok(0) => Residency::Cold,
            Ok(cached) => {
                let middle = (part.start.midpoint(part.end) / STEP_BYTES).max(part.start / STEP_BYTES + 1) * STEP_BYTES;
                if middle < part.end {
                    todo.push(middle..part.end);
                    todo.push(part.start..middle);
                    continue;
                }
                let short = range.end - range.start <= STEP_BYTES;
                if short && cached >= pages / PARTLY_SHARE { Residency::Partly } else { Residency::Cold }
            }
            Err(_) => return vec![(range, Residency::Unknown)],
        };
        match out.last_mut() {
            Some((last, residency)) if *residency == found => last.end = part.end,
            _ => out.push((part, found)),
        }
    }
    out
}

/// False where nothing tells what is cached, neither cachestat nor a read that refuses to wait:
/// there `auto` reads all through the cache.
pub fn can_be_asked(fd: BorrowedFd<'_>) -> bool {
    sys::cached_pages(fd, 0, 1).is_ok() || is_cached(fd, 0).is_some()
}

/// Whether the byte at `offset` can be had without waiting for the disk; None where the file system
/// does not answer that. Works for files of any owner.
pub fn is_cached(fd: BorrowedFd<'_>, offset: u64) -> Option<bool> {
    let mut byte = 0u8;
    let vector = [libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 }];
    // SAFETY: the one vector is a local byte.
    match unsafe { sys::preadv_cached(fd, &vector, offset) } {
        Ok(count) => Some(count == 1),
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => None,
        Err(_) => Some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::Residency::{Cached, Cold, Partly, Unknown};
    use super::*;

    const PAGE: u64 = 4096;
    const MIB: u64 = 1 << 20;

    /// Classifies `range` of a file of which the page cache holds the pages of `cached`.
    fn classified(range: Range<u64>, cached: Range<u64>) -> Vec<(Range<u64>, Residency)> {
        classify_by(range, PAGE, |begin, end| {
            let (first, last) = ((begin / PAGE).max(cached.start / PAGE), end.div_ceil(PAGE).min(cached.end.div_ceil(PAGE)));
            Ok(last.saturating_sub(first))
        })
    }

    #[test]
    fn one_residency_is_one_stretch() {
        assert_eq!(classified(1000..9 * MIB, 0..9 * MIB), [(1000..9 * MIB, Cached)]);
        assert_eq!(classified(1000..9 * MIB, 0..0), [(1000..9 * MIB, Cold)]);
    }

    #[test]
    fn stretches_are_told_apart_at_steps() {
        assert_eq!(classified(0..16 * MIB, 4 * MIB..8 * MIB), [(0..4 * MIB, Cold), (4 * MIB..8 * MIB, Cached), (8 * MIB..16 * MIB, Cold)]);
    }

    #[test]
    fn a_short_file_read_ahead_in_part_is_read_on_through_the_cache() {
        assert_eq!(classified(1000..MIB, 0..MIB / 2), [(1000..MIB, Partly)]);
        assert_eq!(classified(0..MIB, 0..MIB / 8), [(0..MIB, Partly)]);
        assert_eq!(classified(0..MIB, 0..MIB / 8 - PAGE), [(0..MIB, Cold)]);
    }

    #[test]
    fn the_head_of_a_long_file_is_cold_all_the_same() {
        assert_eq!(classified(1000..32 * MIB, 0..512 << 10), [(1000..32 * MIB, Cold)]);
        assert_eq!(classified(1000..32 * MIB, 0..2 * MIB), [(1000..2 * MIB, Cached), (2 * MIB..32 * MIB, Cold)]);
    }

    #[test]
    fn a_kernel_that_does_not_tell_leaves_the_whole_range_unknown() {
        assert_eq!(classify_by(0..8 * MIB, PAGE, |_, _| Err(io::Error::from_raw_os_error(libc::EPERM))), [(0..8 * MIB, Unknown)]);
    }
}
