//! The direct lane: reads around the page cache, straight to their place where alignment allows it.
//! One loop for every engine: a ring with many reads in flight, or threads with one each.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::direct_read::{DirectRead, Step};
use super::ordinary::Reader;
use crate::io::bounce::Bounce;
use crate::io::engine::{Answer, Engine, Refusal};
use crate::io::layout::Block;
use crate::io::policy;
use crate::io::queue::Half;
use crate::io::settings::{DIRECT_THREADS, MAX_BOUNCES};
use crate::io::shared::Shared;
use crate::io::threads::{spawn, spawn_all};

/// Starts a half of the lane: one thread with a ring, or several with plain reads where there is no
/// io_uring, or where it must not be used.
pub fn start(shared: &Arc<Shared>, half: Half) {
    if half == Half::ThreadsOnly {
        return spawn_threads(shared, half, None);
    }
    match shared.uring() {
        Ok(ring) => {
            if let Err(error) = spawn(shared, "mx-ring", move |shared| run(shared, half, ring, None)) {
                shared.conclude(Err(error));
            }
        }
        Err(refusal) => go_on_without(shared, half, refusal),
    }
}

/// Threads take over from a ring that is refused; where io_uring was asked for by name, that is the
/// end.
fn go_on_without(shared: &Arc<Shared>, half: Half, refusal: Refusal) {
    if shared.settings.driver.may_fall_back() {
        spawn_threads(shared, half, Some(refusal));
    } else {
        shared.conclude(Err(refusal.error()));
    }
}

/// `refusal`: why there is no ring, where that is why.
fn spawn_threads(shared: &Arc<Shared>, half: Half, refusal: Option<Refusal>) {
    spawn_all(shared, "mx-direct", DIRECT_THREADS, move |shared| run(shared, half, shared.pread(), refusal));
}

/// Body of a thread of the lane. Returns when no direct block can come any more, or after a stop
/// when the last read in flight has returned.
fn run(shared: &Arc<Shared>, half: Half, engine: Box<dyn Engine>, refusal: Option<Refusal>) {
    let mut flight = Flight::new(shared, half, engine, refusal);
    let mut answers: Vec<Answer> = Vec::new();
    let mut refused = None;
    loop {
        while refused.is_none() && flight.has_room() {
            let Some(block) = shared.queue.next_direct(half, flight.is_empty()) else { break };
            flight.begin(block);
        }
        if flight.is_empty() {
            break;
        }
        match flight.engine.wait(&mut answers) {
            Ok(()) => {}
            Err(refusal) => {
                refused = Some(refusal);
                flight.give_back_unbegun();
                go_on_without(shared, half, refusal);
            }
        }
        for (slot, result) in answers.drain(..) {
            flight.take_in(slot, result, refused.is_some());
        }
    }
    flight.land();
    // The other threads may have ended before the last of the ring's blocks came back.
    if refused.is_some() && !shared.queue.stopped() {
        run(shared, half, shared.pread(), refused);
    }
}

/// The reads of one thread.
struct Flight<'a> {
    shared: &'a Arc<Shared>,
    half: Half,
    engine: Box<dyn Engine>,
    refusal: Option<Refusal>,
    /// A panic must not free buffers that the kernel still writes into, so they are dropped by
    /// hand, once nothing is in flight.
    slots: ManuallyDrop<Vec<Option<DirectRead>>>,
    free: Vec<usize>,
    bounces: usize,
    spare: Option<Bounce>,
    reader: Reader,
}

impl<'a> Flight<'a> {
    fn new(shared: &'a Arc<Shared>, half: Half, engine: Box<dyn Engine>, refusal: Option<Refusal>) -> Self {
        let depth = engine.depth();
        Flight {
            shared,
            half,
            engine,
            refusal,
            slots: ManuallyDrop::new((0..depth).map(|_| None).collect()),
            free: (0..depth).rev().collect(),
            bounces: 0,
            spare: None,
            reader: Reader::new(shared),
        }
    }

    fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    fn has_room(&self) -> bool {
        !self.free.is_empty() && self.bounces < MAX_BOUNCES
    }

    fn begin(&mut self, block: Block) {
        if self.engine.depth() == 1 {
            self.note_threads(&block);
        }
        let Some(read) = DirectRead::new(self.shared, block, &mut self.spare) else { return };
        let Some(slot) = self.free.pop() else { return };
        self.bounces += usize::from(read.bounces());
        self.slots[slot] = Some(read);
        self.submit(slot);
    }

    fn note_threads(&self, block: &Block) {
        let state = self.shared.file_of(block);
        state.direct_by_threads.store(true, Ordering::Relaxed);
        match (state.unsound.get(), self.refusal) {
            (Some(system), _) => state.note_fallback(policy::unsound(system)),
            (None, Some(refusal)) => state.note_fallback(policy::without_ring(refusal)),
            (None, None) => {}
        }
    }

    /// Makes the read that is due. What the engine does not take counts as a read that failed.
    fn submit(&mut self, slot: usize) {
        while let Some(read) = self.slots[slot].as_mut() {
            // SAFETY: the target is pinned memory of this block alone or its bounce buffer. The
            // slot keeps block, file and buffer until the answer.
            let Err(errno) = (unsafe { read.submit(self.shared, &mut *self.engine, slot) }) else { return };
            if read.complete(self.shared, &mut self.reader, Err(errno)) == Step::Finished || self.shared.queue.stopped() {
                self.clear(slot);
            }
        }
    }

    /// Takes in an answer, and makes the next read of the block where there is one.
    fn take_in(&mut self, slot: usize, result: Result<usize, i32>, refused: bool) {
        let Some(read) = self.slots[slot].as_mut() else { return };
        match read.complete(self.shared, &mut self.reader, result) {
            Step::Again if self.shared.queue.stopped() => drop(self.clear(slot)),
            Step::Again if refused => self.requeue(slot),
            Step::Again => self.submit(slot),
            Step::Finished => drop(self.clear(slot)),
        }
    }

    /// The engine takes no more reads: what it has not begun goes back to the queue.
    fn give_back_unbegun(&mut self) {
        for slot in self.engine.abandon() {
            self.requeue(slot);
        }
    }

    /// Another thread reads the block from its start.
    fn requeue(&mut self, slot: usize) {
        if let Some(block) = self.clear(slot) {
            self.shared.queue.requeue_direct(self.half, block);
        }
    }

    fn clear(&mut self, slot: usize) -> Option<Block> {
        let mut read = self.slots[slot].take()?;
        self.free.push(slot);
        self.bounces -= usize::from(read.bounces());
        self.spare = read.take_bounce().or(self.spare.take());
        Some(read.block)
    }

    fn land(mut self) {
        // SAFETY: not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.slots) };
    }
}
