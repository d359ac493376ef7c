//! What the page cache holds of a file, so that cached parts are copied and the rest is read around the cache.

use std::ops::Range;
use std::os::fd::BorrowedFd;

use super::sys;

/// Finest step at which cached and uncached parts are told apart; one direct read.
const STEP_BYTES: u64 = 2 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residency {
    /// Every page is in the page cache.
    Cached,
    /// Some page is not.
    Cold,
    /// The kernel does not tell (cachestat needs Linux 6.5, and ownership or write permission); a read that refuses to wait will.
    Unknown,
}

/// Splits a file range into stretches of one residency, longest first guess: one question where the whole range is alike.
pub fn classify(fd: BorrowedFd<'_>, range: Range<u64>) -> Vec<(Range<u64>, Residency)> {
    let page = sys::page_bytes() as u64;
    let mut out: Vec<(Range<u64>, Residency)> = Vec::new();
    let mut todo = vec![range.clone()];
    while let Some(part) = todo.pop() {
        let pages = part.end.div_ceil(page) - part.start / page;
        let found = match sys::cached_pages(fd, part.start, part.end - part.start) {
            Ok(cached) if cached >= pages => Residency::Cached,
            Ok(0) => Residency::Cold,
            Ok(_) => {
                let middle = (part.start + (part.end - part.start) / 2).next_multiple_of(STEP_BYTES);
                if middle < part.end && part.end - part.start > STEP_BYTES {
                    todo.push(middle..part.end);
                    todo.push(part.start..middle);
                    continue;
                }
                Residency::Cold
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

/// Whether the byte at `offset` can be had without waiting for the disk; None where the file system does not answer that.
/// Works for files of any owner.
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
