//! Memory that native threads are giving back.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Counts closes whose memory is not given back yet. Whoever finds no memory waits for them before that is an error: their owner has let go of it.
pub struct InFlight {
    count: Mutex<usize>,
    ended: Condvar,
}

/// All closes of the process that run on threads of their own.
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

    /// Waits for what is under way. False where nothing is.
    pub fn wait(&self) -> bool {
        let mut count = self.lock();
        let waited = *count > 0;
        while *count > 0 {
            count = self.ended.wait(count).unwrap_or_else(PoisonError::into_inner);
        }
        waited
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

    #[test]
    fn a_wait_ends_with_the_last_that_is_under_way() {
        static COUNT: InFlight = InFlight::new();
        assert!(!COUNT.wait());
        let two = [COUNT.begin(), COUNT.begin()];
        let waiting = std::thread::spawn(|| COUNT.wait());
        drop(two);
        waiting.join().expect("a wait that ends");
        assert!(!COUNT.wait());
    }
}
