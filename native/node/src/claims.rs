//! Memory that loads of this process, whichever of its threads made them, have yet to take: no
//! kernel counts it, and other loads must.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};

use napi_derive::napi;

/// Signed: two threads that change it at once may pass through a sum that is none.
static CLAIMED: AtomicI64 = AtomicI64::new(0);

/// A part of `claimedBytes`. Ends with its object, which a worker that is terminated takes along.
#[napi]
pub struct NativeClaim {
    bytes: Cell<i64>,
    claimed_before: i64,
}

#[napi]
impl NativeClaim {
    /// The sum of the others when this one was made.
    #[napi]
    pub fn claimed_before(&self) -> f64 {
        self.claimed_before as f64
    }

    #[napi]
    pub fn change(&self, bytes: f64) {
        let now = bytes as i64;
        CLAIMED.fetch_add(now - self.bytes.replace(now), Ordering::AcqRel);
    }
}

impl Drop for NativeClaim {
    fn drop(&mut self) {
        CLAIMED.fetch_sub(self.bytes.get(), Ordering::AcqRel);
    }
}

/// Counts memory that a load will take, until that is changed to 0, or the object is gone with its
/// thread.
#[napi]
pub fn claim_memory(bytes: f64) -> NativeClaim {
    let bytes = bytes as i64;
    NativeClaim { bytes: Cell::new(bytes), claimed_before: CLAIMED.fetch_add(bytes, Ordering::AcqRel) }
}

/// Of all threads of the process.
#[napi]
pub fn claimed_bytes() -> f64 {
    CLAIMED.load(Ordering::Acquire) as f64
}
