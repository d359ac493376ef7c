//! SHA-256 of memory and of files, on several threads.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::memory::zeroed;
use crate::parallel::each_index;
use crate::sys;

/// Bytes of one SHA-256.
pub const DIGEST_BYTES: usize = 32;
const FILE_BLOCK_BYTES: usize = 1 << 20;

/// Digests of memory ranges `(address, length)`, one after the other in the order given.
/// ERR_ARENA_OUT_OF_MEMORY
///
/// # Safety
/// Every range is readable memory that stays mapped until the call returns.
pub unsafe fn digest_memory(ranges: &[(usize, usize)], threads: usize) -> Result<Vec<u8>> {
    in_parallel(ranges.len(), threads, |index| {
        let (address, length) = ranges[index];
        if length == 0 {
            return Ok(Sha256::digest([]).into());
        }
        // SAFETY: promised by the caller.
        let bytes = unsafe { std::slice::from_raw_parts(address as *const u8, length) };
        Ok(Sha256::digest(bytes).into())
    })
}

/// Digests of whole files. ERR_CHECKPOINT_IO, ERR_ARENA_OUT_OF_MEMORY
pub fn digest_files(paths: &[PathBuf], threads: usize) -> Result<Vec<u8>> {
    in_parallel(paths.len(), threads, |index| digest_file(&paths[index]))
}

fn digest_file(path: &Path) -> Result<[u8; DIGEST_BYTES]> {
    let failed = |operation, error: &std::io::Error| {
        let name = path.to_string_lossy().into_owned();
        Error::new("ERR_CHECKPOINT_IO", format!("cannot hash {name}")).with("file", name).caused_by(operation, error)
    };
    let fd = sys::open_read(path, 0).map_err(|error| failed("open", &error))?;
    let mut buffer = zeroed(FILE_BLOCK_BYTES, "a buffer to hash a file through")?;
    let mut hash = Sha256::new();
    let mut offset = 0;
    loop {
        // SAFETY: the buffer is ours.
        match unsafe { sys::pread(fd.as_fd(), buffer.as_mut_ptr() as usize, buffer.len(), offset) } {
            Ok(0) => return Ok(hash.finalize().into()),
            Ok(count) => {
                hash.update(&buffer[..count]);
                offset += count as u64;
            }
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            Err(error) => return Err(failed("pread", &error)),
        }
    }
}

fn in_parallel(count: usize, threads: usize, job: impl Fn(usize) -> Result<[u8; DIGEST_BYTES]> + Sync) -> Result<Vec<u8>> {
    let out = Mutex::new(zeroed(count * DIGEST_BYTES, "digests")?);
    let failure = Mutex::new(None);
    each_index("mx-digest", count, threads, |index| match job(index) {
        Ok(digest) => {
            let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
            out[index * DIGEST_BYTES..(index + 1) * DIGEST_BYTES].copy_from_slice(&digest);
            true
        }
        Err(error) => {
            failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            false
        }
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(out.into_inner().unwrap_or_else(PoisonError::into_inner)),
    }
}
