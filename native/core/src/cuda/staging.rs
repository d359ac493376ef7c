//! Pinned slots of host memory that files are read into, and a thread that copies from there to the
//! device.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use super::copy::{CopyStream, Piece};
use crate::arena::Pin;
use crate::error::{Error, Result};
use crate::parallel::{available_parallelism, each_index};
use crate::vmm::drop_pages;

/// Longest part of a slot that one thread makes memory for.
const TOUCH_BYTES: usize = 8 << 20;
const TOUCH_THREADS: usize = 8;

pub struct StagingSpec {
    /// Holds the slots, which follow one another from `address` in memory of the host.
    pub memory: Pin,
    pub address: usize,
    pub slot_bytes: usize,
    pub slots: usize,
    /// Holds `[begin, end)`, the memory of the device that is copied to.
    pub target: Pin,
    pub begin: usize,
    pub end: usize,
}

enum Command {
    Copy { slot: usize, pieces: Vec<Piece> },
    Close,
}

/// Told for each slot when it is free, the first time when it is pinned, and then after each
/// `copy`. After a failure it is told of every slot that waits, and copies may still be in flight
/// until the end.
pub type Report = Box<dyn Fn(usize, Result<()>) + Send>;
/// What could not be given back, once nothing is in flight, registered or pinned any more. Never
/// called where the driver does not say so.
pub type Ended = Box<dyn FnOnce(Vec<Error>) + Send>;

/// Safe from any thread. Dropped unclosed it closes itself.
pub struct Staging {
    commands: Sender<Command>,
    address: usize,
    slot_bytes: usize,
    slots: usize,
    begin: usize,
    end: usize,
}

impl Staging {
    /// Starts the thread, which pins slot after slot. ERR_ARENA_NOT_LOADABLE where `target` is no
    /// memory of CUDA's; ERR_TRANSFER_NO_THREAD.
    pub fn start(spec: StagingSpec, report: Report, ended: Ended) -> Result<Self> {
        if spec.target.arena().cuda_device().is_none() {
            let message = "this arena's memory is filled through its CUDA device, and its backend, being wrapped or foreign, does not give that away: use cudaBackend({ device }) itself";
            return Err(Error::new("ERR_ARENA_NOT_LOADABLE", message));
        }
        let (commands, received) = channel();
        let StagingSpec { address, slot_bytes, slots, begin, end, .. } = spec;
        let started = std::thread::Builder::new().name("mx-staged".to_owned()).spawn(move || run(spec, &received, &report, ended));
        started.map_err(|error| {
            let message = "no copying thread could be started: raise the limit on processes (ulimit -u, the cgroup's pids.max)";
            Error::new("ERR_TRANSFER_NO_THREAD", message).caused_by("pthread_create", &error)
        })?;
        Ok(Staging { commands, address, slot_bytes, slots, begin, end })
    }

    /// Where a slot begins.
    pub fn slot_address(&self, slot: usize) -> usize {
        self.address + slot * self.slot_bytes
    }

    /// Queues copies from a slot that is free and filled. ERR_INTERNAL, and nothing queued, where
    /// one does not lie within slot and target.
    pub fn copy(&self, slot: usize, pieces: Vec<Piece>) -> Result<()> {
        let slot_begin = self.slot_address(slot);
        let within =
            |at: usize, length: usize, begin: usize, end: usize| at >= begin && at.checked_add(length).is_some_and(|after| after <= end);
        let fits = |piece: &Piece| {
            within(piece.from, piece.length, slot_begin, slot_begin + self.slot_bytes)
                && within(piece.to, piece.length, self.begin, self.end)
        };
        if slot >= self.slots || !pieces.iter().all(fits) {
            return Err(Error::new("ERR_INTERNAL", "a copy goes past its slot or target"));
        }
        // A thread that is gone has told why of every slot.
        let _ = self.commands.send(Command::Copy { slot, pieces });
        Ok(())
    }

    /// Waits for what is in flight and gives everything back, on the thread.
    pub fn close(&self) {
        let _ = self.commands.send(Command::Close);
    }
}

fn run(spec: StagingSpec, commands: &Receiver<Command>, report: &Report, ended: Ended) {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&spec, commands, report)));
    let StagingSpec { memory, address, slot_bytes, slots, target, .. } = spec;
    let (errors, registered) = match outcome {
        Ok(Some(released)) => released,
        unknown => {
            // The device may still read one and write the other: neither is ever given back.
            std::mem::forget((memory, target));
            if unknown.is_err() {
                let error = Error::new("ERR_INTERNAL", "the copying thread panicked");
                (0..slots).for_each(|slot| report(slot, Err(error.clone())));
            }
            return;
        }
    };
    if registered {
        std::mem::forget(memory);
    } else {
        drop_pages(address, slots * slot_bytes);
        drop(memory);
    }
    drop(target);
    ended(errors);
}

/// Serves until the end. What could not be given back, and whether memory is still registered; None
/// where copies may be in flight for ever.
fn work(spec: &StagingSpec, commands: &Receiver<Command>, report: &Report) -> Option<(Vec<Error>, bool)> {
    let Some(device) = spec.target.arena().cuda_device() else { return Some((Vec::new(), false)) };
    let current = device.enter();
    let stream = current.as_ref().map_err(Error::clone).and_then(|_current| CopyStream::create(device, spec.slots));
    let (stream, failure) = match stream {
        Ok(stream) => (Some(stream), None),
        Err(error) => (None, Some(error)),
    };
    let in_flight = VecDeque::with_capacity(spec.slots);
    let mut worker = Worker { spec, report, stream, in_flight, waiting: vec![true; spec.slots], failure: None, idle: true };
    if let Some(error) = failure {
        worker.fail(error);
    }
    worker.serve(commands);
    if !worker.in_flight.is_empty() {
        worker.drain();
    }
    worker.idle.then(|| worker.stream.map_or_else(Default::default, CopyStream::release))
}

struct Worker<'spec> {
    spec: &'spec StagingSpec,
    report: &'spec Report,
    /// None where it could not be made.
    stream: Option<CopyStream<'spec>>,
    /// Slots whose copies are queued, oldest first.
    in_flight: VecDeque<usize>,
    /// Slots that a report is owed for.
    waiting: Vec<bool>,
    failure: Option<Error>,
    /// False when the driver does not say that copies which failed are over.
    idle: bool,
}

impl Worker<'_> {
    /// New copies go first, then the end of old ones, and only then pinning, which takes several
    /// times as long as copying a slot does.
    fn serve(&mut self, commands: &Receiver<Command>) {
        loop {
            let to_pin = self.failure.is_none() && self.pinned_slots() < self.spec.slots;
            let command = if to_pin || !self.in_flight.is_empty() {
                commands.try_recv()
            } else {
                commands.recv().map_err(|_| TryRecvError::Disconnected)
            };
            match command {
                Ok(Command::Copy { slot, pieces }) => self.copy(slot, &pieces),
                Ok(Command::Close) | Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) if self.in_flight.is_empty() => self.pin_next(),
                Err(TryRecvError::Empty) => self.finish_oldest(),
            }
        }
    }

    fn pinned_slots(&self) -> usize {
        self.stream.as_ref().map_or(0, CopyStream::pinned_slots)
    }

    fn pin_next(&mut self) {
        let Some(stream) = &mut self.stream else { return };
        let slot = stream.pinned_slots();
        let address = self.spec.address + slot * self.spec.slot_bytes;
        touch(address, self.spec.slot_bytes);
        match stream.pin(address, self.spec.slot_bytes) {
            Ok(()) => self.free(slot),
            Err(error) => self.fail(error),
        }
    }

    fn copy(&mut self, slot: usize, pieces: &[Piece]) {
        self.waiting[slot] = true;
        if let Some(failure) = self.failure.clone() {
            return self.fail(failure);
        }
        let pinned = slot < self.pinned_slots();
        let Some(stream) = self.stream.as_ref().filter(|_| pinned) else {
            return self.fail(Error::new("ERR_INTERNAL", "a slot was copied from before it was pinned"));
        };
        let queued = stream.queue(slot, pieces);
        self.in_flight.push_back(slot);
        if let Err(error) = queued {
            self.fail(error);
        }
    }

    fn finish_oldest(&mut self) {
        let (Some(slot), Some(stream)) = (self.in_flight.front().copied(), &self.stream) else { return };
        match stream.wait(slot) {
            Ok(()) => {
                self.in_flight.pop_front();
                self.free(slot);
            }
            Err(error) => self.fail(error),
        }
    }

    fn free(&mut self, slot: usize) {
        self.waiting[slot] = false;
        (self.report)(slot, Ok(()));
    }

    /// Tells of it at once, whoever waits, and then waits for the copies in flight.
    fn fail(&mut self, error: Error) {
        for slot in 0..self.spec.slots {
            if std::mem::take(&mut self.waiting[slot]) {
                (self.report)(slot, Err(error.clone()));
            }
        }
        self.failure.get_or_insert(error);
        if !self.in_flight.is_empty() {
            self.drain();
        }
    }

    fn drain(&mut self) {
        self.in_flight.clear();
        self.idle &= self.stream.as_ref().is_none_or(CopyStream::drain);
    }
}

/// Has the kernel make the memory on several threads: pinning it would do the same on one. Where
/// the kernel does not know how, pinning does it.
fn touch(address: usize, bytes: usize) {
    each_index("mx-touch", bytes.div_ceil(TOUCH_BYTES), available_parallelism().min(TOUCH_THREADS), |index| {
        let begin = index * TOUCH_BYTES;
        let length = TOUCH_BYTES.min(bytes - begin);
        // SAFETY: mapped, ours, and changes no contents.
        unsafe { libc::madvise((address + begin) as *mut _, length, libc::MADV_POPULATE_WRITE) == 0 }
    });
}
