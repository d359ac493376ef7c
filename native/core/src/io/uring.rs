//! The direct lane over io_uring: one thread, a deep queue, no copy.

use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use io_uring::{IoUring, opcode, types};

use super::buffered::Patience;
use super::direct::{self, DirectRead, Step};
use super::shared::{DirectQueue, Shared};
use crate::error::{Error, errno_name};

/// Why there is no ring, or none any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    operation: &'static str,
    pub errno: i32,
}

impl Refusal {
    fn new(operation: &'static str, error: &io::Error) -> Self {
        Refusal { operation, errno: error.raw_os_error().unwrap_or(libc::ENOSYS) }
    }

    /// For the caller who asked for io_uring by name.
    pub fn error(&self) -> Error {
        let remedy = match self.errno {
            libc::EMFILE => "raise the limit on descriptors (ulimit -n)",
            libc::ENFILE => "raise the machine's limit on descriptors (fs.file-max)",
            libc::ENOMEM => "free memory, or raise the limit on locked memory (ulimit -l)",
            libc::EAGAIN | libc::EBUSY => "load again once the machine has memory for requests",
            _ => "allow io_uring (seccomp profile, kernel.io_uring_disabled)",
        };
        Error::new("ERR_TRANSFER_IO_URING_REFUSED", format!("{self} here: use the driver auto or pread, or {remedy}"))
            .with("errno", errno_name(self.errno))
            .with("operation", self.operation)
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let errno = errno_name(self.errno);
        match self.operation {
            SETUP => write!(f, "io_uring refused ({errno})"),
            operation => write!(f, "io_uring refused ({operation}: {errno})"),
        }
    }
}

const SETUP: &str = "io_uring_setup";
const ENTER: &str = "io_uring_enter";

/// A ring that has answered once: profiles exist that allow it to be made and refuse its use.
pub fn new_ring(depth: u32) -> Result<IoUring, Refusal> {
    let mut ring = IoUring::new(depth.max(1)).map_err(|error| Refusal::new(SETUP, &error))?;
    // SAFETY: an operation without memory.
    let _ = unsafe { ring.submission().push(&opcode::Nop::new().build()) };
    let mut patience = Patience::default();
    while ring.completion().next().is_none() {
        enter(&ring, None, &mut patience)?;
    }
    Ok(ring)
}

/// Hands the queue to the kernel and waits for an answer. What may pass is no failure, until it has lasted too long.
fn enter(ring: &IoUring, planned: Option<i32>, patience: &mut Patience) -> Result<(), Refusal> {
    let entered = match planned {
        Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        None => ring.submit_and_wait(1),
    };
    match entered {
        Ok(_) => *patience = Patience::default(),
        Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) && patience.try_again() => {}
        Err(error) => return Err(Refusal::new(ENTER, &error)),
    }
    Ok(())
}

/// Reads through bounce buffers that are in flight at one time: their memory stays within some ten MiB, however deep the queue is.
const MAX_BOUNCES: usize = 64;

/// Body of the ring thread. Returns when no direct block can come any more, or after a stop when the last read in flight has returned.
pub fn run(shared: &Arc<Shared>, mut ring: IoUring) {
    let depth = shared.settings.queue_depth.max(1) as usize;
    // A panic must not free buffers that the kernel still writes into, so they are dropped by hand, once nothing is in flight.
    let mut slots: ManuallyDrop<Vec<Option<DirectRead>>> = ManuallyDrop::new((0..depth).map(|_| None).collect());
    let mut free: Vec<usize> = (0..depth).rev().collect();
    // Slots in the queue that the kernel has not taken yet, in its order.
    let mut waiting = VecDeque::with_capacity(depth);
    let mut spare = None;
    let mut patience = Patience::default();
    loop {
        while let Some(&slot) = free.last() {
            if slots.iter().flatten().filter(|read| read.bounce.is_some()).count() >= MAX_BOUNCES {
                break;
            }
            let Some(block) = shared.next_direct(DirectQueue::Any, free.len() == depth) else { break };
            let Some(read) = DirectRead::new(shared, block, &mut spare) else { continue };
            free.pop();
            slots[slot] = Some(read);
            if submit(shared, &mut ring, &mut slots, slot, &mut waiting) == Step::Finished {
                recycle(&mut slots, &mut free, &mut spare, slot);
            }
        }
        if free.len() == depth {
            drop(ManuallyDrop::into_inner(slots));
            return;
        }
        let entered = enter(&ring, shared.faults.enter(), &mut patience);
        // The kernel takes entries in order, whatever it answers.
        let left = ring.submission().len();
        waiting.drain(..waiting.len() - left);
        if let Err(refusal) = entered {
            return go_on_without(shared, ring, slots, &waiting, refusal);
        }
        for (slot, result) in completions(&mut ring) {
            if advance(shared, &mut ring, &mut slots, slot, result, &mut waiting) == Step::Finished {
                recycle(&mut slots, &mut free, &mut spare, slot);
            }
        }
    }
}

fn completions(ring: &mut IoUring) -> Vec<(usize, Result<usize, i32>)> {
    let result = |code: i32| usize::try_from(code).map_err(|_| -code);
    ring.completion().map(|entry| (entry.user_data() as usize, result(entry.result()))).collect()
}

/// The kernel takes nothing from the queue any more: what it has not taken goes to threads under `auto`, and is dropped where io_uring was asked for
/// by name. What it has taken it still answers in the ring, and until then nothing of it is let go.
fn go_on_without(
    shared: &Arc<Shared>,
    mut ring: IoUring,
    mut slots: ManuallyDrop<Vec<Option<DirectRead>>>,
    waiting: &VecDeque<usize>,
    refusal: Refusal,
) {
    let by_threads = shared.may_fall_back();
    if !by_threads {
        shared.report(Err(refusal.error()));
    }
    for slot in waiting {
        if let Some(read) = slots[*slot].take() {
            shared.requeue_direct(read.block);
        }
    }
    if by_threads {
        direct::spawn_threads(shared, DirectQueue::Any, Some(refusal));
    }
    while slots.iter().any(Option::is_some) {
        let answers = completions(&mut ring);
        if answers.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        for (slot, result) in answers {
            let Some(mut read) = slots[slot].take() else { continue };
            if read.complete(shared, result) == Step::Again {
                shared.requeue_direct(read.block);
            }
        }
    }
    drop(ManuallyDrop::into_inner(slots));
    // The other threads may have ended before the last of these blocks came back.
    direct::run_thread(shared, DirectQueue::Any, Some(refusal));
}

fn recycle(slots: &mut [Option<DirectRead>], free: &mut Vec<usize>, spare: &mut Option<super::bounce::Bounce>, slot: usize) {
    if let Some(mut read) = slots[slot].take() {
        *spare = read.bounce.take().or(spare.take());
    }
    free.push(slot);
}

/// Takes in a result; puts the rest of the block into the queue where there is one.
#[inline(never)]
fn advance(
    shared: &Arc<Shared>,
    ring: &mut IoUring,
    slots: &mut [Option<DirectRead>],
    slot: usize,
    result: Result<usize, i32>,
    waiting: &mut VecDeque<usize>,
) -> Step {
    let Some(read) = slots[slot].as_mut() else { return Step::Finished };
    match read.complete(shared, result) {
        Step::Again if !shared.stopped() => submit(shared, ring, slots, slot, waiting),
        _ => Step::Finished,
    }
}

/// Puts the read that is due into the queue. What cannot be queued counts as a read that failed.
#[inline(never)]
fn submit(shared: &Arc<Shared>, ring: &mut IoUring, slots: &mut [Option<DirectRead>], slot: usize, waiting: &mut VecDeque<usize>) -> Step {
    let Some(read) = slots[slot].as_mut() else { return Step::Finished };
    loop {
        let errno = match read.fault(shared) {
            Some(errno) => errno,
            None => match push(shared, ring, read, slot) {
                Ok(()) => {
                    waiting.push_back(slot);
                    return Step::Again;
                }
                Err(errno) => errno,
            },
        };
        if read.complete(shared, Err(errno)) == Step::Finished || shared.stopped() {
            return Step::Finished;
        }
    }
}

fn push(shared: &Arc<Shared>, ring: &mut IoUring, read: &DirectRead, slot: usize) -> Result<(), i32> {
    let (address, length, offset) = read.next_read();
    let fd = read.file.direct(&shared.files[read.block.file as usize].spec)?.as_raw_fd();
    let entry = opcode::Read::new(types::Fd(fd), address as *mut u8, length as u32).offset(offset).build().user_data(slot as u64);
    // SAFETY: the target is pinned memory of this block alone or its bounce buffer, and the slot keeps block, file and buffer until completion.
    // The queue has as many entries as there are slots, each with one read.
    unsafe { ring.submission().push(&entry) }.map_err(|_| libc::EBUSY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_what_was_missing_and_its_remedy() {
        for (errno, remedy) in
            [(libc::EMFILE, "ulimit -n"), (libc::ENFILE, "fs.file-max"), (libc::ENOMEM, "ulimit -l"), (libc::EPERM, "seccomp")]
        {
            let error = Refusal { operation: SETUP, errno }.error();
            assert_eq!(error.code, "ERR_TRANSFER_IO_URING_REFUSED");
            assert!(error.message.contains(&errno_name(errno)) && error.message.contains(remedy), "{}", error.message);
        }
    }
}
