//! Why an arena refuses.

use super::{Allocation, Arena};
use crate::error::{Error, Result};

impl Arena {
    #[cold]
    pub(super) fn closed(&self) -> Error {
        let message = format!("the arena at {:#x} is closed: make a new one", self.base);
        Error::new("ERR_ARENA_CLOSED", message).with("address", format!("{:#x}", self.base))
    }

    #[cold]
    pub(super) fn allocating(&self) -> Error {
        let base = self.base;
        let message = format!(
            "close: an allocation of the arena at {base:#x} is being made right now: await it, or end the calls of other threads (setActiveArena(null)), and close the arena then"
        );
        Error::new("ERR_ARENA_BUSY", message).with("operation", "close").with("address", format!("{base:#x}"))
    }

    #[cold]
    pub(super) fn exhausted(&self, bytes: usize, used_bytes: usize) -> Error {
        let total_bytes = self.total_bytes;
        let message = format!(
            "{bytes} bytes would go past the end of the arena: {used_bytes} of the {total_bytes} bytes reserved are handed out, and freed addresses are never reused; reserve more with totalBytes"
        );
        Error::new("ERR_ARENA_EXHAUSTED", message).with("length", bytes).with("usedBytes", used_bytes).with("totalBytes", total_bytes)
    }
}

#[cold]
pub(super) fn no_size() -> Error {
    Error::new("ERR_ARENA_SIZE", "an arena allocates at least one byte, 0 were asked for").with("length", 0usize)
}

#[cold]
pub(super) fn busy(operation: &'static str, allocation: Allocation) -> Error {
    let Allocation { address, bytes, .. } = allocation;
    let message = format!(
        "{operation}: the {bytes} bytes at {address:#x} are still used by a transfer, or registered: await it, or the `settled` promise of its error, or close the registration, first"
    );
    Error::new("ERR_ARENA_BUSY", message).with("operation", operation).with("address", format!("{address:#x}")).with("length", bytes)
}

#[cold]
pub(super) fn no_allocation(address: usize, length: usize) -> Error {
    let message = format!("the {length} bytes at {address:#x} do not lie within one live allocation of the arena");
    Error::new("ERR_ARENA_ADDRESS", message).with("address", format!("{address:#x}")).with("length", length)
}

pub(super) fn reserve_size(total_bytes: usize, granularity: usize) -> Result<usize> {
    if !granularity.is_power_of_two() {
        let message = format!("the backend's granularity must be a positive power of two in bytes, it is {granularity}");
        return Err(Error::new("ERR_ARENA_GRANULARITY", message).with("granularity", granularity));
    }
    match total_bytes.checked_next_multiple_of(granularity) {
        Some(rounded) if total_bytes > 0 => Ok(rounded),
        _ => {
            let message = format!("an arena cannot reserve {total_bytes} bytes");
            Err(Error::new("ERR_ARENA_SIZE", message).with("length", total_bytes))
        }
    }
}
