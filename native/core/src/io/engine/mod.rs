//! Who makes a read. A lane hands reads to an engine and takes answers from it, whichever it is:
//! `pread` answers at once, `uring` later and in any order, and a wrapper may stand in front.

mod counting;
#[cfg(any(test, feature = "faults"))]
pub mod faulty;
mod pread;
mod refusal;
mod uring;

use std::os::fd::BorrowedFd;

pub use counting::Counting;
pub use pread::Pread;
pub use refusal::Refusal;
pub use uring::Uring;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Through the page cache.
    Buffered,
    /// Only what the page cache holds; EAGAIN where that is nothing.
    Cached,
    /// Around the page cache, over a descriptor with O_DIRECT.
    Direct,
}

/// One read that is due.
pub struct Read<'a> {
    pub fd: BorrowedFd<'a>,
    pub way: Way,
    /// Where the bytes go, in order. One place for a direct read.
    pub memory: &'a [libc::iovec],
    pub offset: u64,
}

/// The tag of a read, and the bytes that it brought or its errno.
pub type Answer = (usize, Result<usize, i32>);

/// Makes the reads of one thread.
pub trait Engine: Send {
    /// Most reads in flight at one time.
    fn depth(&self) -> usize;

    /// Takes a read, to be answered under `tag`, which no other read in flight has. An errno means
    /// that it was not taken, and gets no answer.
    ///
    /// # Safety
    /// Until the answer, the memory is writable and nobody else's, and the descriptor stays open.
    unsafe fn submit(&mut self, tag: usize, read: &Read<'_>) -> Result<(), i32>;

    /// Adds the answers that there are, at least one; waits where there is none yet. Called only
    /// while a read is in flight. A refusal is final: the engine takes no more reads, and
    /// [`Engine::abandon`] has to be called.
    fn wait(&mut self, answers: &mut Vec<Answer>) -> Result<(), Refusal>;

    /// After a refusal: the tags of reads that were never begun, and get no answer. The others are
    /// answered by `wait` as before.
    fn abandon(&mut self) -> Vec<usize> {
        Vec::new()
    }
}

/// Makes one read, and waits for it.
///
/// # Safety
/// As for [`Engine::submit`]. Nothing else is in flight.
pub unsafe fn read(engine: &mut dyn Engine, read: &Read<'_>) -> Result<usize, i32> {
    // SAFETY: promised by the caller.
    unsafe { engine.submit(0, read) }?;
    let mut answers = Vec::with_capacity(1);
    match engine.wait(&mut answers) {
        Ok(()) => answers.pop().map_or(Err(libc::EIO), |(_, result)| result),
        Err(refusal) => Err(refusal.errno),
    }
}

/// Stands in front of every engine of a transfer: what a test puts between.
pub type Wrap = Box<dyn Fn(Box<dyn Engine>) -> Box<dyn Engine> + Send + Sync>;
