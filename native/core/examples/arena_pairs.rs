//! Times malloc + free over a backend that does nothing. Prints one line of JSON: nanoseconds a
//! pair and pairs a second with one thread and with two at once, the median of several rounds each.

use std::sync::{Arc, Barrier};
use std::time::Instant;

use mx_core::arena::Arena;
use mx_core::error::Result;
use mx_core::vmm::{MemoryKind, VmmBackend};

struct EmptyBackend;

impl VmmBackend for EmptyBackend {
    fn reserve(&self, _total_bytes: usize) -> Result<usize> {
        Ok(0x10_0000_0000_0000)
    }
    fn allocate(&self, _address: usize, _bytes: usize) -> Result<u64> {
        Ok(1)
    }
    fn deallocate(&self, _address: usize, _bytes: usize, _handle: u64) -> Result<()> {
        Ok(())
    }
    fn release_reserve(&self, _base: usize, _total_bytes: usize) -> Result<()> {
        Ok(())
    }
    fn allocation_granularity(&self) -> usize {
        2 << 20
    }
    fn memory(&self) -> MemoryKind {
        MemoryKind::None
    }
}

const ROUNDS: usize = 15;

/// Pairs of each thread in a round: all of them fit the default reserve of 16 TiB.
const PAIRS: usize = 2_000_000;

/// Seconds until `threads` threads have done `PAIRS` pairs each.
fn round(threads: usize) -> f64 {
    let arena = Arc::new(Arena::with_backend(Box::new(EmptyBackend), 1 << 44).expect("an arena"));
    let barrier = Arc::new(Barrier::new(threads + 1));
    let workers: Vec<_> = (0..threads)
        .map(|_| {
            let (arena, barrier) = (Arc::clone(&arena), Arc::clone(&barrier));
            std::thread::spawn(move || {
                barrier.wait();
                for _ in 0..PAIRS {
                    let address = arena.malloc(1 << 20).expect("address space");
                    assert!(arena.free(address).expect("a free"));
                }
            })
        })
        .collect();
    barrier.wait();
    let start = Instant::now();
    for worker in workers {
        worker.join().expect("a worker");
    }
    let seconds = start.elapsed().as_secs_f64();
    assert_eq!(arena.stats().used_bytes, threads * PAIRS * (2 << 20));
    assert_eq!(arena.stats().live_allocation_count, 0);
    seconds
}

fn main() {
    let mut seconds = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (threads, measured) in [1, 2].into_iter().zip(&mut seconds) {
            measured.push(round(threads));
        }
    }
    let [one, two] = seconds.map(|mut measured| {
        measured.sort_by(f64::total_cmp);
        measured[ROUNDS / 2]
    });
    let pairs = PAIRS as f64;
    println!(
        r#"{{"bench":"arena-native","pairs":{PAIRS},"rounds":{ROUNDS},"oneThread":{{"nsPerPair":{:.1},"pairsPerSecond":{:.0}}},"twoThreads":{{"nsPerPair":{:.1},"pairsPerSecond":{:.0}}}}}"#,
        one / pairs * 1e9,
        pairs / one,
        two / pairs * 1e9,
        2.0 * pairs / two,
    );
}
