//! Counts the reads that an engine takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Answer, Engine, Read, Refusal};

pub struct Counting {
    pub inner: Box<dyn Engine>,
    pub reads: Arc<AtomicU64>,
}

impl Engine for Counting {
    fn depth(&self) -> usize {
        self.inner.depth()
    }

    unsafe fn submit(&mut self, tag: usize, read: &Read<'_>) -> Result<(), i32> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        // SAFETY: promised by the caller.
        unsafe { self.inner.submit(tag, read) }
    }

    fn wait(&mut self, answers: &mut Vec<Answer>) -> Result<(), Refusal> {
        self.inner.wait(answers)
    }

    fn abandon(&mut self) -> Vec<usize> {
        self.inner.abandon()
    }
}
