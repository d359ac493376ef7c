//! Planned faults for tests: reads that fail, come short or stall, and a ring that is refused. Part
//! of test builds only.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Answer, Engine, Read, Refusal, Way, Wrap};

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

/// The faults of one transfer, whose engines count its reads together.
struct Plan {
    faults: Vec<Fault>,
    reads: AtomicU64,
    enters: AtomicU64,
}

impl Plan {
    fn next(&self, way: Way) -> Option<FaultKind> {
        let number = self.reads.fetch_add(1, Ordering::Relaxed) + 1;
        let strikes = |kind| match kind {
            FaultKind::FailDirect(_) => way == Way::Direct,
            FaultKind::FailEnter(_) => false,
            FaultKind::Fail(_) | FaultKind::Short(_) | FaultKind::Stall(_) => true,
        };
        self.faults.iter().find(|fault| (fault.nth == number || fault.nth == 0) && strikes(fault.kind)).map(|fault| fault.kind)
    }

    fn enter(&self) -> Option<i32> {
        let number = self.enters.fetch_add(1, Ordering::Relaxed) + 1;
        self.faults.iter().find_map(|fault| match fault.kind {
            FaultKind::FailEnter(errno) if number >= fault.nth => Some(errno),
            _ => None,
        })
    }
}

struct Faulty {
    inner: Box<dyn Engine>,
    plan: Arc<Plan>,
    /// Reads in flight whose answer will be changed.
    struck: Vec<(usize, FaultKind)>,
    /// Answers of reads that were never made.
    failed: Vec<Answer>,
    abandoned: bool,
}

/// What gives a transfer these faults.
pub fn wrap(faults: Vec<Fault>) -> Wrap {
    let plan = Arc::new(Plan { faults, reads: AtomicU64::new(0), enters: AtomicU64::new(0) });
    Box::new(move |inner| Box::new(Faulty { inner, plan: plan.clone(), struck: Vec::new(), failed: Vec::new(), abandoned: false }))
}

impl Engine for Faulty {
    fn depth(&self) -> usize {
        self.inner.depth()
    }

    unsafe fn submit(&mut self, tag: usize, read: &Read<'_>) -> Result<(), i32> {
        match self.plan.next(read.way) {
            // As if the page cache had lost the rest.
            Some(_) if read.way == Way::Cached => self.failed.push((tag, Err(libc::EAGAIN))),
            Some(FaultKind::Fail(errno) | FaultKind::FailDirect(errno)) => self.failed.push((tag, Err(errno))),
            fault => {
                self.struck.extend(fault.map(|kind| (tag, kind)));
                // SAFETY: promised by the caller.
                return unsafe { self.inner.submit(tag, read) };
            }
        }
        Ok(())
    }

    fn wait(&mut self, answers: &mut Vec<Answer>) -> Result<(), Refusal> {
        if !self.failed.is_empty() {
            answers.append(&mut self.failed);
            return Ok(());
        }
        // Reads one by one are not entered anywhere.
        if self.depth() > 1
            && !self.abandoned
            && let Some(errno) = self.plan.enter()
        {
            return Err(Refusal::of_enter(errno));
        }
        let before = answers.len();
        self.inner.wait(answers)?;
        for (tag, result) in &mut answers[before..] {
            let Some(at) = self.struck.iter().position(|(struck, _)| struck == tag) else { continue };
            match self.struck.swap_remove(at).1 {
                FaultKind::Short(bytes) => *result = result.map(|count| count.min(bytes.max(1) as usize)),
                FaultKind::Stall(time) => std::thread::sleep(time),
                FaultKind::Fail(_) | FaultKind::FailDirect(_) | FaultKind::FailEnter(_) => {}
            }
        }
        Ok(())
    }

    fn abandon(&mut self) -> Vec<usize> {
        self.abandoned = true;
        self.inner.abandon()
    }
}
