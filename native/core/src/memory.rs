//! Buffers of the size of an input: where there is no memory for one, that is an error, and never
//! the end of the process.

use std::alloc::{Layout, alloc_zeroed};

use crate::error::{Error, Result};

/// `bytes` zeros, which the kernel makes as they are touched. `what` completes "no memory for".
/// ERR_ARENA_OUT_OF_MEMORY
pub fn zeroed(bytes: usize, what: &str) -> Result<Vec<u8>> {
    if bytes == 0 {
        return Ok(Vec::new());
    }
    let layout = Layout::array::<u8>(bytes).map_err(|_| refused(bytes, what))?;
    // SAFETY: the layout has a size above zero.
    let memory = unsafe { alloc_zeroed(layout) };
    if memory.is_null() {
        return Err(refused(bytes, what));
    }
    // SAFETY: allocated by the global allocator with the layout of such a vector; zeros are valid
    // bytes.
    Ok(unsafe { Vec::from_raw_parts(memory, bytes, bytes) })
}

/// An empty vector with room for `count` values. As [`zeroed`].
pub fn room<T>(count: usize, what: &str) -> Result<Vec<T>> {
    let mut out = Vec::new();
    out.try_reserve_exact(count).map_err(|_| refused(count.saturating_mul(size_of::<T>()), what))?;
    Ok(out)
}

/// The values of an iterator that knows its length. As [`zeroed`].
pub fn collected<T>(values: impl ExactSizeIterator<Item = T>, what: &str) -> Result<Vec<T>> {
    let mut out = room(values.len(), what)?;
    out.extend(values);
    Ok(out)
}

fn refused(bytes: usize, what: &str) -> Error {
    let message = format!("no memory for {what} ({bytes} bytes): free memory, raise the limit (ulimit -v, the cgroup's), or ask for less");
    Error::new("ERR_ARENA_OUT_OF_MEMORY", message).with("length", bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_had_is_an_error() {
        for error in [
            zeroed(usize::MAX, "a copy").expect_err("more than an address space"),
            zeroed(1 << 62, "a copy").expect_err("more than an address space"),
            room::<u64>(1 << 59, "a copy").expect_err("more than an address space"),
        ] {
            assert_eq!(error.code, "ERR_ARENA_OUT_OF_MEMORY");
            assert!(error.message.starts_with("no memory for a copy ("), "{}", error.message);
        }
    }

    #[test]
    fn what_can_be_had_is_right() {
        assert_eq!(zeroed(3, "zeros").expect("three bytes"), [0, 0, 0]);
        assert!(zeroed(0, "nothing").expect("no bytes").is_empty());
        assert_eq!(collected([1, 2].into_iter(), "numbers").expect("two numbers"), [1, 2]);
    }
}
