//! How a transfer is to read, as its caller chose it.

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
