//! Planned faults for tests: the nth read of a transfer fails, comes short or stalls. A transfer without a plan pays one branch a read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// The read fails with this errno.
    Fail(i32),
    /// As `Fail`, but strikes direct reads only.
    FailDirect(i32),
    /// io_uring_enter fails with this errno from its nth call on.
    FailEnter(i32),
    /// The read brings at most so many bytes.
    Short(u64),
    /// The read returns only after this time.
    Stall(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    /// The read it strikes, counted from 1 over all lanes; 0 strikes every read.
    pub nth: u64,
    pub kind: FaultKind,
}

#[derive(Debug, Default)]
pub struct FaultPlan {
    faults: Vec<Fault>,
    reads: AtomicU64,
    enters: AtomicU64,
}

impl FaultPlan {
    pub fn new(faults: Vec<Fault>) -> Self {
        FaultPlan { faults, reads: AtomicU64::new(0), enters: AtomicU64::new(0) }
    }

    /// Counts one read, and tells what shall happen to it.
    pub fn next(&self, direct: bool) -> Option<FaultKind> {
        let number = self.reads.fetch_add(1, Ordering::Relaxed) + 1;
        let strikes = |kind| match kind {
            FaultKind::FailDirect(_) => direct,
            FaultKind::FailEnter(_) => false,
            FaultKind::Fail(_) | FaultKind::Short(_) | FaultKind::Stall(_) => true,
        };
        self.faults.iter().find(|fault| (fault.nth == number || fault.nth == 0) && strikes(fault.kind)).map(|fault| fault.kind)
    }

    /// Counts one call of io_uring_enter; the errno that it shall fail with.
    pub fn enter(&self) -> Option<i32> {
        let number = self.enters.fetch_add(1, Ordering::Relaxed) + 1;
        self.faults.iter().find_map(|fault| match fault.kind {
            FaultKind::FailEnter(errno) if number >= fault.nth => Some(errno),
            _ => None,
        })
    }

    /// Reads counted so far.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }
}
