//! Planned faults for tests: the nth read of a transfer fails, comes short or stalls. A transfer without a plan pays one branch a read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// The read fails with this errno.
    Fail(i32),
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
}

impl FaultPlan {
    pub fn new(faults: Vec<Fault>) -> Self {
        FaultPlan { faults, reads: AtomicU64::new(0) }
    }

    /// Counts one read, and tells what shall happen to it.
    pub fn next(&self) -> Option<FaultKind> {
        let number = self.reads.fetch_add(1, Ordering::Relaxed) + 1;
        self.faults.iter().find(|fault| fault.nth == number || fault.nth == 0).map(|fault| fault.kind)
    }

    /// Reads counted so far.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }
}
