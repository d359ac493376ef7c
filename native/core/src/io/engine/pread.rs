//! Plain positioned reads: each is made when it is taken.

use std::io;

use super::{Answer, Engine, Read, Refusal, Way};
use crate::sys;

#[derive(Default)]
pub struct Pread {
    answer: Option<Answer>,
}

impl Engine for Pread {
    fn depth(&self) -> usize {
        1
    }

    unsafe fn submit(&mut self, tag: usize, read: &Read<'_>) -> Result<(), i32> {
        // SAFETY: promised by the caller.
        let result = unsafe { make(read) }.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO));
        self.answer = Some((tag, result));
        Ok(())
    }

    fn wait(&mut self, answers: &mut Vec<Answer>) -> Result<(), Refusal> {
        answers.extend(self.answer.take());
        Ok(())
    }
}

/// # Safety
/// As for [`Engine::submit`].
unsafe fn make(read: &Read<'_>) -> io::Result<usize> {
    match (read.way, read.memory) {
        // SAFETY: promised by the caller.
        (Way::Cached, vectors) => unsafe { sys::preadv_cached(read.fd, vectors, read.offset) },
        // SAFETY: as above.
        (_, [one]) => unsafe { sys::pread(read.fd, one.iov_base as usize, one.iov_len, read.offset) },
        // SAFETY: as above.
        (_, vectors) => unsafe { sys::preadv(read.fd, vectors, read.offset) },
    }
}
