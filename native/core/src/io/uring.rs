//! The direct lane over io_uring: one thread, a deep queue, no copy.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use io_uring::{IoUring, opcode, types};

use super::direct::{DirectRead, Step};
use super::shared::Shared;
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

/// Body of the ring thread. Returns when no direct block can come any more, or after a stop when the last read in flight has returned.
pub fn run(shared: &Arc<Shared>, mut ring: IoUring) {
    let depth = shared.settings.queue_depth.max(1) as usize;
    let mut slots: Vec<Option<DirectRead>> = (0..depth).map(|_| None).collect();
    let mut free: Vec<usize> = (0..depth).rev().collect();
    let mut spare = None;
    loop {
        while let Some(&slot) = free.last() {
            let Some(block) = shared.next_direct(free.len() == depth) else { break };
            let Some(read) = DirectRead::new(shared, block, &mut spare) else { continue };
            free.pop();
            slots[slot] = Some(read);
            if submit(shared, &mut ring, &mut slots, slot) == Step::Finished {
                recycle(&mut slots, &mut free, &mut spare, slot);
            }
        }
        if free.len() == depth {
            return;
        }
        match ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
            Err(error) => {
                // Reads are in flight and their end cannot be learnt: their memory must never be handed back, so this thread must not return.
                shared.report(Err(refused(error.raw_os_error().unwrap_or(libc::EIO))));
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
fn advance(shared: &Arc<Shared>, ring: &mut IoUring, slots: &mut [Option<DirectRead>], slot: usize, result: Result<usize, i32>) -> Step {
    let Some(read) = slots[slot].as_mut() else { return Step::Finished };
    match read.complete(shared, result) {
        Step::Again if !shared.stopped() => submit(shared, ring, slots, slot),
        _ => Step::Finished,
    }
}

fn submit(shared: &Arc<Shared>, ring: &mut IoUring, slots: &mut [Option<DirectRead>], slot: usize) -> Step {
    let Some(read) = slots[slot].as_mut() else { return Step::Finished };
    if let Some(errno) = read.fault(shared) {
        return advance(shared, ring, slots, slot, Err(errno));
    }
    let (address, length, offset) = read.next_read();
    let fd = match read.file.direct(&shared.files[read.block.file as usize].spec) {
        Ok(fd) => fd.as_raw_fd(),
        Err(errno) => return advance(shared, ring, slots, slot, Err(errno)),
    };
    let entry = opcode::Read::new(types::Fd(fd), address as *mut u8, length as u32).offset(offset).build().user_data(slot as u64);
    // SAFETY: the target is pinned memory of this block alone or its bounce buffer, and the slot keeps block, file and buffer until completion.
    if unsafe { ring.submission().push(&entry) }.is_err() {
        // The queue has as many entries as there are slots, each with one read.
        return advance(shared, ring, slots, slot, Err(libc::EBUSY));
    }
    Step::Again
}
