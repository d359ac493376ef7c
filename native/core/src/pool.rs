//! A bounded number of threads for work that comes in any number.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

type Job = Box<dyn FnOnce() + Send>;

/// Starts threads as work comes, up to its limit; each ends when nothing is queued. Work must not
/// wait for other work of the same pool. The process may exit with work queued, which is then not
/// done.
pub struct Pool {
    name: &'static str,
    max_threads: usize,
    state: Mutex<State>,
}

struct State {
    queue: VecDeque<Job>,
    threads: usize,
}

impl Pool {
    pub const fn new(name: &'static str, max_threads: usize) -> Self {
        Pool { name, max_threads, state: Mutex::new(State { queue: VecDeque::new(), threads: 0 }) }
    }

    /// Does `job` on a thread of the pool, in the order of the calls as far as threads start it.
    /// Where the system refuses a thread, those that run do it; where none runs, the refusal is the
    /// error and the job is dropped.
    pub fn run(&'static self, job: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.run_with(job, || thread::Builder::new().name(self.name.to_owned()).spawn(|| self.work()).map(drop))
    }

    fn run_with(&'static self, job: impl FnOnce() + Send + 'static, start_thread: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut state = self.lock();
        state.queue.push_back(Box::new(job));
        if state.threads >= self.max_threads {
            return Ok(());
        }
        // Under the lock, so that the threads which are counted on after a refusal cannot end
        // before they have seen this job.
        let Err(refusal) = start_thread() else {
            state.threads += 1;
            return Ok(());
        };
        if state.threads > 0 {
            return Ok(());
        }
        let dropped = state.queue.pop_back();
        drop(state);
        drop(dropped);
        Err(refusal)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        loop {
            let mut state = self.lock();
            let Some(job) = state.queue.pop_front() else {
                state.threads -= 1;
                return;
            };
            drop(state);
            // Work answers for its own panics; here they must not cost the pool a thread that it
            // counts on.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn any_number_of_jobs_is_done_by_few_threads() {
        static POOL: Pool = Pool::new("mx-test", 3);
        static NOW: AtomicUsize = AtomicUsize::new(0);
        static MOST: AtomicUsize = AtomicUsize::new(0);
        let (done, all) = channel();
        for number in 0..20_000 {
            let done = done.clone();
            POOL.run(move || {
                MOST.fetch_max(NOW.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                done.send(number).expect("send");
                NOW.fetch_sub(1, Ordering::SeqCst);
            })
            .expect("a thread");
        }
        drop(done);
        let mut seen: Vec<i32> = all.iter().collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..20_000).collect::<Vec<_>>());
        assert!(MOST.load(Ordering::SeqCst) <= 3);
    }

    #[test]
    fn a_refused_thread_queues_where_one_runs_and_is_an_error_where_none_does() {
        static POOL: Pool = Pool::new("mx-test", 3);
        let refuse = || Err(io::Error::from_raw_os_error(libc::EAGAIN));
        let refused = POOL.run_with(|| panic!("done although refused"), refuse).expect_err("no thread");
        assert_eq!(refused.raw_os_error(), Some(libc::EAGAIN));
        let (open, gate) = channel::<()>();
        let (done, waiting) = channel();
        POOL.run(move || assert!(gate.recv().is_ok())).expect("a thread");
        POOL.run_with(move || done.send(7).expect("send"), refuse).expect("queued");
        open.send(()).expect("send");
        assert_eq!(waiting.recv(), Ok(7));
    }

    #[test]
    fn a_job_that_panics_costs_no_thread() {
        static POOL: Pool = Pool::new("mx-test", 1);
        let (done, waiting) = channel();
        POOL.run(|| panic!("a job that panics")).expect("a thread");
        POOL.run(move || done.send(7).expect("send")).expect("a thread");
        assert_eq!(waiting.recv(), Ok(7));
    }
}
