//! The threads of a transfer under every interleaving that `loom` makes: no block is lost or taken
//! twice, and every thread ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use loom::thread;

use super::layout::Block;
use super::queue::{Half, Hint, PutBack, Queue, Work};

/// Each file is one block, and its number says what becomes of it: read from the page cache, ...
const CACHED: usize = 0;
/// ... read directly, ...
const DIRECT: usize = 1;
/// ... read directly, which is refused, ...
const REFUSED: usize = 2;
/// ... or looked for in the page cache, which has nothing of it.
const UNKNOWN: usize = 3;

struct Model {
    queue: Queue,
    /// Blocks in place, by file.
    done: [AtomicUsize; 4],
    /// How many attempts to open a file find no descriptor.
    unopened: AtomicUsize,
    /// The first direct thread can read nothing, and gives over to a second.
    ring_refused: bool,
}

impl Model {
    fn buffered_thread(self: &Arc<Self>) {
        loop {
            match self.queue.next_buffered() {
                Work::Exit => return,
                Work::Scout(file) => self.scout(file),
                Work::Buffered(block, Hint::Unknown) => self.publish(vec![], vec![block]),
                Work::Buffered(block, _) => self.finish(&block),
            }
        }
    }

    fn scout(self: &Arc<Self>, file: usize) {
        if self.unopened.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
            assert_ne!(self.queue.put_back(file), PutBack::GivenUp);
            return;
        }
        let block = Block { file: file as u32, offset: 0, length: 1, pieces: 0..1 };
        match file {
            DIRECT | REFUSED => self.publish(vec![], vec![block]),
            UNKNOWN => self.publish(vec![(block, Hint::Unknown)], vec![]),
            _ => self.publish(vec![(block, Hint::Cached)], vec![]),
        }
    }

    fn publish(self: &Arc<Self>, buffered: Vec<(Block, Hint)>, direct: Vec<Block>) {
        // A read that was stopped is not gone on with: nobody else is told.
        if !self.queue.stopped() && self.queue.publish(Half::Any, buffered, direct) {
            self.spawn_direct(self.ring_refused);
        }
    }

    fn spawn_direct(self: &Arc<Self>, ring_refused: bool) {
        let model = self.clone();
        thread::spawn(move || model.direct_thread(ring_refused));
    }

    fn direct_thread(self: &Arc<Self>, ring_refused: bool) {
        if ring_refused && let Some(block) = self.queue.next_direct(Half::Any, true) {
            self.queue.requeue_direct(Half::Any, block);
            self.spawn_direct(false);
        }
        while let Some(block) = self.queue.next_direct(Half::Any, true) {
            if block.file as usize == REFUSED {
                self.queue.return_to_buffered(vec![block]);
            } else {
                self.finish(&block);
                self.queue.direct_done();
            }
        }
    }

    fn finish(&self, block: &Block) {
        self.done[block.file as usize].fetch_add(1, Relaxed);
        self.queue.file_closed();
    }
}

struct Case {
    files: &'static [usize],
    max_open_files: usize,
    unopened: usize,
    ring_refused: bool,
    /// Buffered threads beside the one that waits for them.
    threads: usize,
    stopped: bool,
}

const CASE: Case = Case { files: &[], max_open_files: 2, unopened: 0, ring_refused: false, threads: 1, stopped: false };

/// That the direct threads end too is checked by loom: a model whose threads sleep on is an error.
fn try_every_interleaving(case: Case) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    let case = Arc::new(case);
    builder.check(move || {
        let model = Arc::new(Model {
            queue: Queue::new(case.files.iter().copied(), case.max_open_files),
            done: Default::default(),
            unopened: AtomicUsize::new(case.unopened),
            ring_refused: case.ring_refused,
        });
        let threads: Vec<_> = (0..case.threads)
            .map(|_| {
                let model = model.clone();
                thread::spawn(move || model.buffered_thread())
            })
            .collect();
        if case.stopped {
            model.queue.stop();
        } else {
            model.buffered_thread();
        }
        for thread in threads {
            thread.join().unwrap();
        }
        for file in case.files {
            let done = model.done[*file].load(Relaxed);
            assert!(done == 1 || (done == 0 && case.stopped), "file {file} was read {done} times");
        }
    });
}

#[test]
fn loom_direct_and_refused_blocks_are_each_read_once() {
    try_every_interleaving(Case { files: &[DIRECT, REFUSED], ..CASE });
}

#[test]
fn loom_what_the_cache_does_not_hold_is_read_directly() {
    try_every_interleaving(Case { files: &[UNKNOWN, CACHED], ..CASE });
}

#[test]
fn loom_a_file_waits_for_room_to_be_opened() {
    try_every_interleaving(Case { files: &[CACHED, REFUSED], max_open_files: 1, ..CASE });
}

#[test]
fn loom_a_file_without_a_descriptor_is_taken_again() {
    try_every_interleaving(Case { files: &[CACHED, DIRECT], unopened: 2, ..CASE });
}

#[test]
fn loom_what_a_refused_ring_had_taken_is_read_by_another_thread() {
    try_every_interleaving(Case { files: &[UNKNOWN, REFUSED], ring_refused: true, threads: 0, ..CASE });
}

#[test]
fn loom_a_stop_ends_every_thread() {
    try_every_interleaving(Case { files: &[UNKNOWN], stopped: true, threads: 2, ..CASE });
}
