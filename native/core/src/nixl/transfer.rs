//! A transfer that an agent holds, from its making to its release.

use super::agent::Request;
use super::spec::{Answer, Keep};
use crate::error::{Error, Fact, Result};

/// What NIXL may touch; held for good when a panic drops it, which says nothing of NIXL.
#[derive(Default)]
pub(super) struct Keeps(pub Vec<Keep>);

impl Drop for Keeps {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::mem::forget(std::mem::take(&mut self.0));
        }
    }
}

pub(super) enum Stage {
    /// Not posted yet.
    Made,
    InFlight,
    /// Failed in a plugin that may still be moving other pieces.
    Stranded,
    Over,
}

pub(super) struct Transfer {
    pub plugin: usize,
    pub request: Request,
    pub stage: Stage,
    pub registrations: Vec<u64>,
    /// Copies of what its registrations hold.
    pub keep: Keeps,
    pub done: Option<Answer<()>>,
    pub settled: Option<Box<dyn FnOnce() + Send>>,
    /// What it moves, for errors.
    pub what: String,
    pub facts: Vec<(&'static str, Fact)>,
}

impl Transfer {
    pub fn abort(&mut self) {
        if let Some(done) = self.done.take() {
            done(Err(self.told(Error::new("ERR_TRANSFER_ABORTED", "the transfer was aborted"))));
        }
    }

    pub fn told(&self, mut error: Error) -> Error {
        error.message = format!("{} ({})", error.message, self.what);
        error.facts.extend(self.facts.iter().cloned());
        error
    }

    pub fn finish(&mut self, outcome: Result<()>, strands: bool) {
        let failed = outcome.is_err();
        if let Some(done) = self.done.take() {
            done(outcome.map_err(|error| self.told(error)));
        }
        if failed && strands {
            self.stage = Stage::Stranded;
        } else {
            self.stage = Stage::Over;
            self.settle();
        }
    }

    fn settle(&mut self) {
        self.keep.0.clear();
        if let Some(settled) = self.settled.take() {
            settled();
        }
    }
}
