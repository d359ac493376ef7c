//! The same job for each of many things, spread over threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Processors that this process may use; affinity and cgroup quota are counted in.
pub fn available_parallelism() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Calls `job` with each index below `count`, in ascending order of their start, on up to `threads`
/// threads named `name`, the caller's among them. Once a job answers false no further one is
/// started. A system that refuses threads gets by with fewer.
pub fn each_index(name: &str, count: usize, threads: usize, job: impl Fn(usize) -> bool + Sync) {
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return;
            }
            if !job(index) {
                next.store(count, Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(count) {
            if thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::each_index;

    fn seen(count: usize, threads: usize, stop_at: usize) -> Vec<usize> {
        let seen = Mutex::new(Vec::new());
        each_index("mx-test", count, threads, |index| {
            seen.lock().unwrap().push(index);
            index != stop_at
        });
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        seen
    }

    #[test]
    fn every_index_comes_once() {
        for threads in [0, 1, 3, 200] {
            assert_eq!(seen(100, threads, usize::MAX), (0..100).collect::<Vec<_>>());
        }
        assert_eq!(seen(0, 4, usize::MAX), Vec::<usize>::new());
    }

    #[test]
    fn what_was_started_before_a_stop_is_whole() {
        assert_eq!(seen(100, 1, 7), (0..=7).collect::<Vec<_>>());
        let several = seen(100, 4, 7);
        // Those behind it that had started already may be there, none before it may be missing.
        assert_eq!(several[..8], [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
