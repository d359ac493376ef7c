//! Reads through io_uring: many in flight from one thread.

use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::time::Duration;

use io_uring::{IoUring, opcode, types};

use super::{Answer, Engine, Read, Refusal};
use crate::io::patience::Patience;

pub struct Uring {
    ring: IoUring,
    depth: usize,
    /// Reads in the queue that the kernel has not taken yet, in its order.
    waiting: VecDeque<usize>,
    patience: Patience,
    abandoned: bool,
}

impl Uring {
    /// A ring that has answered once: profiles exist that allow it to be made and refuse its use.
    pub fn new(depth: u32) -> Result<Self, Refusal> {
        let depth = depth.max(1);
        let ring = IoUring::new(depth).map_err(|error| Refusal::of_setup(&error))?;
        let mut uring = Uring { ring, depth: depth as usize, waiting: VecDeque::new(), patience: Patience::default(), abandoned: false };
        // SAFETY: an operation without memory.
        let _ = unsafe { uring.ring.submission().push(&opcode::Nop::new().build()) };
        while uring.ring.completion().next().is_none() {
            uring.enter()?;
        }
        Ok(uring)
    }

    /// Hands the queue to the kernel and waits for an answer. What may pass is no failure, until it
    /// has lasted too long.
    fn enter(&mut self) -> Result<(), Refusal> {
        let entered = self.ring.submit_and_wait(1);
        // The kernel takes entries in order, whatever it answers.
        let left = self.ring.submission().len();
        self.waiting.drain(..self.waiting.len().saturating_sub(left));
        let errno = match entered {
            Ok(_) => {
                self.patience = Patience::default();
                return Ok(());
            }
            Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
        };
        match errno {
            libc::EINTR => Ok(()),
            libc::EAGAIN | libc::EBUSY if self.patience.try_again() => Ok(()),
            _ => Err(Refusal::of_enter(errno)),
        }
    }

    fn take(&mut self, answers: &mut Vec<Answer>) -> usize {
        let before = answers.len();
        let result = |code: i32| usize::try_from(code).map_err(|_| -code);
        answers.extend(self.ring.completion().map(|entry| (entry.user_data() as usize, result(entry.result()))));
        answers.len() - before
    }
}

impl Engine for Uring {
    fn depth(&self) -> usize {
        self.depth
    }

    unsafe fn submit(&mut self, tag: usize, read: &Read<'_>) -> Result<(), i32> {
        let [memory] = read.memory else { return Err(libc::EINVAL) };
        let length = u32::try_from(memory.iov_len).map_err(|_| libc::EINVAL)?;
        let entry = opcode::Read::new(types::Fd(read.fd.as_raw_fd()), memory.iov_base.cast(), length);
        let entry = entry.offset(read.offset).build().user_data(tag as u64);
        // SAFETY: promised by the caller, until the answer. The queue has room for as many reads as
        // may be in flight.
        unsafe { self.ring.submission().push(&entry) }.map_err(|_| libc::EBUSY)?;
        self.waiting.push_back(tag);
        Ok(())
    }

    fn wait(&mut self, answers: &mut Vec<Answer>) -> Result<(), Refusal> {
        while self.take(answers) == 0 {
            if self.abandoned {
                // The kernel still answers what it has taken, and may not be asked to wait for it.
                std::thread::sleep(Duration::from_millis(1));
            } else {
                self.enter()?;
            }
        }
        Ok(())
    }

    fn abandon(&mut self) -> Vec<usize> {
        self.abandoned = true;
        self.waiting.drain(..).collect()
    }
}
