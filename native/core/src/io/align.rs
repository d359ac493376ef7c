//! What direct I/O asks of offsets, lengths and addresses.

/// Of file offsets (and lengths) and of memory addresses, in bytes; powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectAlign {
    pub offset: u64,
    pub memory: u64,
}

impl DirectAlign {
    /// From statx; 4096 where the kernel does not say, which every block device of today accepts.
    /// Offsets are kept at multiples of 4096 also where less is legal: reads that start within a
    /// block of the file system or the drive are slower by half.
    pub fn new(offset: u32, memory: u32) -> Self {
        let known = |value: u32| if value == 0 || !value.is_power_of_two() { 4096 } else { u64::from(value) };
        DirectAlign { offset: known(offset).max(4096), memory: known(memory) }
    }

    /// True when a direct read may go to `address`.
    pub fn allows_address(&self, address: usize) -> bool {
        (address as u64).is_multiple_of(self.memory)
    }

    /// True when a direct read may go from `offset` to `address`.
    pub fn allows(&self, offset: u64, address: usize) -> bool {
        offset.is_multiple_of(self.offset) && self.allows_address(address)
    }
}
