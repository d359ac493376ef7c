//! The direct lane over io_uring: one thread, a deep queue, no copy.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use io_uring::{IoUring, opcode, types};

use super::direct::{DirectRead, Step};
use super::shared::{DirectQueue, Shared};
use crate::error::{Error, errno_name};

pub fn new_ring(depth: u32) -> io::Result<IoUring> {
    IoUring::new(depth.max(1))
}

pub fn refused(errno: i32) -> Error {
    Error::new(
        "ERR_TRANSFER_IO_URING_REFUSED",
        format!(
            "io_uring is refused here ({}): use the driver auto or pread, or allow io_uring (seccomp profile, kernel.io_uring_disabled)",
            errno_name(errno)
        ),
    )
    .with("errno", errno_name(errno))
    .with("operation", "io_uring_setup")
}

/// Reads through bounce buffers that are in flight at one time: their memory stays within some ten MiB, however deep the queue is.
const MAX_BOUNCES: usize = 64;

/// Body of the ring thread. Returns when no direct block can come any more, or after a stop when the last read in flight has returned.
pub fn run(shared: &Arc<Shared>, mut ring: IoUring) {
    let depth = shared.settings.queue_depth.max(1) as usize;
    // A panic must not free buffers that the kernel still writes into, so they are dropped by hand, once nothing is in flight.
    let mut slots: ManuallyDrop<Vec<Option<DirectRead>>> = ManuallyDrop::new((0..depth).map(|_| None).collect());
    let mut free: Vec<usize> = (0..depth).rev().collect();
    let mut spare = None;
    loop {
        while let Some(&slot) = free.last() {
            if slots.iter().flatten().filter(|read| read.bounce.is_some()).count() >= MAX_BOUNCES {
                break;
            }
            let Some(block) = shared.next_direct(DirectQueue::Any, free.len() == depth) else { break };
            let Some(read) = DirectRead::new(shared, block, &mut spare) else { continue };
            free.pop();
            slots[slot] = Some(read);
            if submit(shared, &mut ring, &mut slots, slot) == Step::Finished {
                recycle(&mut slots, &mut free, &mut spare, slot);
            }
        }
        if free.len() == depth {
            drop(ManuallyDrop::into_inner(slots));
            return;
        }
        match ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
            Err(error) => {
                // Reads are in flight and their end cannot be learnt: their memory must never be handed back, so this thread must not return.
                let message = "io_uring failed while reads were in flight: their memory stays in use";
                shared.report(Err(Error::new("ERR_TRANSFER_READ", message).caused_by("io_uring_enter", &error)));
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
        }
        let completions: Vec<(usize, i32)> = ring.completion().map(|entry| (entry.user_data() as usize, entry.result())).collect();
        for (slot, result) in completions {
            let result = usize::try_from(result).map_err(|_| -result);
            if advance(shared, &mut ring, &mut slots, slot, result) == Step::Finished {
                recycle(&mut slots, &mut free, &mut spare, slot);
            }
        }
    }
}

fn recycle(slots: &mut [Option<DirectRead>], free: &mut Vec<usize>, spare: &mut Option<super::bounce::Bounce>, slot: usize) {
    if let Some(mut read) = slots[slot].take() {
        *spare = read.bounce.take().or(spare.take());
    }
    free.push(slot);
}

/// Takes in a result; puts the rest of the block into the queue where there is one.
#[inline(never)]
fn advance(shared: &Arc<Shared>, ring: &mut IoUring, slots: &mut [Option<DirectRead>], slot: usize, result: Result<usize, i32>) -> Step {
    let Some(read) = slots[slot].as_mut() else { return Step::Finished };
    match read.complete(shared, result) {
        Step::Again if !shared.stopped() => submit(shared, ring, slots, slot),
        _ => Step::Finished,
    }
}

/// Puts the read that is due into the queue. What cannot be queued counts as a read that failed.
#[inline(never)]
fn submit(shared: &Arc<Shared>, ring: &mut IoUring, slots: &mut [Option<DirectRead>], slot: usize) -> Step {
    let Some(read) = slots[slot].as_mut() else { return Step::Finished };
    loop {
        let errno = match read.fault(shared) {
            Some(errno) => errno,
            None => match push(shared, ring, read, slot) {
                Ok(()) => return Step::Again,
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
