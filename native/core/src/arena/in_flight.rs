//! Memory that native threads are giving back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Result;

/// Counts what is not given back yet. Whoever finds no memory waits for it before that is an error:
/// its owner has let go of it.
pub struct InFlight {
    count: Mutex<usize>,
    ended: Condvar,
    /// How many have ended since the beginning.
    ends: AtomicU64,
}

/// All of the process that is given back on threads of their own.
pub static GIVING_BACK: InFlight = InFlight::new();

/// One of them, until it is dropped.
pub struct Underway(&'static InFlight);

impl InFlight {
    const fn new() -> Self {
        InFlight { count: Mutex::new(0), ended: Condvar::new(), ends: AtomicU64::new(0) }
    }

    pub fn begin(&'static self) -> Underway {
        *self.lock() += 1;
        Underway(self)
    }

    /// Allocates, and again where there was no memory and some was given back meanwhile, or is
    /// under way; waits for that, for so long at most in all.
    pub fn allocate<T>(&self, patience: Duration, attempt: impl Fn() -> Result<T>) -> Result<T> {
        let mut deadline = None;
        loop {
            // What ends between a failed attempt and the wait must not be missed.
            let ends = self.ends.load(Ordering::Acquire);
            match attempt() {
                Err(error) if error.code.ends_with("_OUT_OF_MEMORY") => {
                    let deadline = *deadline.get_or_insert_with(|| Instant::now() + patience);
                    if !self.wait(ends, deadline) {
                        return Err(error);
                    }
                }
                outcome => return outcome,
            }
        }
    }

    /// Waits for what is under way. False where nothing is, and nothing has ended since `ends`, and
    /// after the deadline.
    fn wait(&self, ends: u64, deadline: Instant) -> bool {
        let count = self.lock();
        let any = *count > 0 || self.ends.load(Ordering::Acquire) != ends;
        let patience = deadline.saturating_duration_since(Instant::now());
        let ended = self.ended.wait_timeout_while(count, patience, |count| *count > 0);
        drop(ended.unwrap_or_else(PoisonError::into_inner));
        any && Instant::now() < deadline
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        let mut count = self.0.lock();
        *count -= 1;
        self.0.ends.fetch_add(1, Ordering::Release);
        drop(count);
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::error::Error;

    const LONG: Duration = Duration::from_secs(60);

    fn out_of_memory() -> Error {
        Error::new("ERR_ARENA_OUT_OF_MEMORY", "no memory")
    }

    /// Fails until `enough` attempts were made; counts them.
    fn after(attempts: &AtomicUsize, enough: usize) -> Result<()> {
        if attempts.fetch_add(1, Ordering::SeqCst) + 1 < enough { Err(out_of_memory()) } else { Ok(()) }
    }

    #[test]
    fn a_failure_waits_for_the_last_that_is_under_way() {
        static COUNT: InFlight = InFlight::new();
        static ATTEMPTS: AtomicUsize = AtomicUsize::new(0);
        let two = [COUNT.begin(), COUNT.begin()];
        let allocating = std::thread::spawn(|| COUNT.allocate(LONG, || after(&ATTEMPTS, 2)));
        while ATTEMPTS.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        drop(two);
        allocating.join().expect("a wait that ends").expect("memory");
    }

    #[test]
    fn what_is_given_back_before_the_wait_begins_is_not_missed() {
        static COUNT: InFlight = InFlight::new();
        let attempts = AtomicUsize::new(0);
        let outcome = COUNT.allocate(LONG, || {
            let outcome = after(&attempts, 2);
            drop(COUNT.begin());
            outcome
        });
        outcome.expect("memory");
    }

    #[test]
    fn a_failure_is_one_where_nothing_is_given_back_or_it_takes_too_long() {
        static COUNT: InFlight = InFlight::new();
        assert_eq!(COUNT.allocate(LONG, || Err::<(), _>(out_of_memory())), Err(out_of_memory()));
        let _underway = COUNT.begin();
        assert_eq!(COUNT.allocate(Duration::from_millis(1), || Err::<(), _>(out_of_memory())), Err(out_of_memory()));
    }

    #[test]
    fn another_failure_is_told_at_once() {
        static COUNT: InFlight = InFlight::new();
        let _underway = COUNT.begin();
        let refused = || Err::<(), _>(Error::new("ERR_ARENA_BUSY", "busy"));
        assert_eq!(COUNT.allocate(LONG, refused).expect_err("busy").code, "ERR_ARENA_BUSY");
    }
}
