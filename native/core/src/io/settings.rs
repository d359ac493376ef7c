//! How a transfer is to read: what its caller chose, and what is the same for all.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// Buffered reads only.
    Pread,
    /// Direct reads through io_uring; refusals are errors.
    IoUring,
    /// Cached parts buffered, the rest direct; falls back.
    Auto,
}

impl Driver {
    /// Direct reads may be left for buffered ones, and io_uring for threads, without the caller's
    /// word.
    pub fn may_fall_back(self) -> bool {
        self == Driver::Auto
    }
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub driver: Driver,
    /// Threads of the buffered lane.
    pub threads: usize,
    /// Longest read of each lane, in bytes.
    pub buffered_block_bytes: u64,
    pub direct_block_bytes: u64,
    /// Direct reads in flight.
    pub queue_depth: u32,
}

/// Uncached parts shorter than this are read through the cache: a direct read would cost more than
/// it saves.
pub const MIN_DIRECT_BYTES: u64 = 128 << 10;

/// Threads of a half of the direct lane where io_uring is refused or not trusted: enough reads in
/// flight to keep a disk busy.
pub const DIRECT_THREADS: usize = 8;

/// Reads through bounce buffers that are in flight at one time: their memory stays within some ten
/// MiB, however deep the queue is.
pub const MAX_BOUNCES: usize = 64;

/// Longest read through a bounce buffer.
pub const MAX_BOUNCE_BYTES: u64 = 512 << 10;

/// Files open at one time; two descriptors each at the most. Keeps a transfer of any number of
/// shards within small descriptor limits.
pub const MAX_OPEN_FILES: usize = 24;
