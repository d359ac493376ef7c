//! Memory that native threads are giving back.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Counts what is not given back yet. Whoever finds no memory waits for it before that is an error:
/// its owner has let go of it.
pub struct InFlight {
    count: Mutex<usize>,
    ended: Condvar,
}

/// All of the process that is given back on threads of their own.
pub static GIVING_BACK: InFlight = InFlight::new();

/// One of them, until it is dropped.
pub struct Underway(&'static InFlight);

impl InFlight {
    const fn new() -> Self {
        InFlight { count: Mutex::new(0), ended: Condvar::new() }
    }

    pub fn begin(&'static self) -> Underway {
        *self.lock() += 1;
        Underway(self)
    }

    /// Waits for what is under way, for so long at most. False where nothing is.
    pub fn wait(&self, patience: Duration) -> bool {
        let count = self.lock();
        let any = *count > 0;
        let ended = self.ended.wait_timeout_while(count, patience, |count| *count > 0);
        drop(ended.unwrap_or_else(PoisonError::into_inner));
        any
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_wait_ends_with_the_last_that_is_under_way() {
        static COUNT: InFlight = InFlight::new();
        assert!(!COUNT.wait(LONG));
        let two = [COUNT.begin(), COUNT.begin()];
        let waiting = std::thread::spawn(|| COUNT.wait(LONG));
        drop(two);
        waiting.join().expect("a wait that ends");
        assert!(!COUNT.wait(LONG));
    }

    #[test]
    fn a_wait_ends_with_its_patience() {
        static COUNT: InFlight = InFlight::new();
        let _underway = COUNT.begin();
        assert!(COUNT.wait(Duration::from_millis(1)));
    }
}
