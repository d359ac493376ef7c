//! The threads of a transfer: the last one to end finishes it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::shared::Shared;
use crate::error::{Error, Result};

/// Counts a running thread.
pub struct Running(Arc<Shared>);

impl Running {
    pub fn new(shared: &Arc<Shared>) -> Self {
        shared.threads_running.fetch_add(1, Ordering::AcqRel);
        Running(shared.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.0.threads_running.fetch_sub(1, Ordering::AcqRel) == 1 {
            finish(&self.0);
        }
    }
}

/// Starts a thread; what panics in it is reported as ERR_INTERNAL, never lost. A refusal by the
/// system is the result.
pub fn spawn(shared: &Arc<Shared>, name: &str, body: impl FnOnce(&Arc<Shared>) + Send + 'static) -> Result<()> {
    let running = Running::new(shared);
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        if catch_unwind(AssertUnwindSafe(|| body(&running.0))).is_err() {
            running.0.conclude(Err(Error::new("ERR_INTERNAL", "a reading thread panicked")));
            // Its reads may be in flight: the transfer never settles, so the memory is never handed
            // back.
            std::mem::forget(running);
        }
    });
    started.map(|_| ()).map_err(|error| {
        let message = "no reading thread could be started: raise the limit on processes (ulimit -u, the cgroup's pids.max)";
        Error::new("ERR_TRANSFER_NO_THREAD", message).caused_by("pthread_create", &error)
    })
}

/// Starts up to `count` threads alike. A system that refuses some gets by with fewer; that none
/// could be started is reported.
pub fn spawn_all(shared: &Arc<Shared>, name: &str, count: usize, body: impl Fn(&Arc<Shared>) + Copy + Send + 'static) {
    for started in 0..count {
        if let Err(error) = spawn(shared, name, body) {
            if started == 0 {
                shared.conclude(Err(error));
            }
            return;
        }
    }
}

/// Nothing is in flight any more.
fn finish(shared: &Arc<Shared>) {
    for file in &shared.files {
        file.close();
    }
    if !shared.failed() {
        let (expected, done) = (shared.layout.total_bytes, shared.bytes_done());
        if done == expected {
            shared.conclude(Ok(()));
        } else {
            shared.conclude(Err(Error::new("ERR_TRANSFER_INCOMPLETE", format!("{done} of {expected} bytes are in place"))
                .with("expectedBytes", expected)
                .with("actualBytes", done)));
        }
    }
    shared.run_epilogue();
}
