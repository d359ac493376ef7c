//! Records of live allocations, in the order of their addresses.

/// One live allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    pub address: usize,
    pub bytes: usize,
    /// What the backend gave for it.
    pub handle: u64,
}

#[derive(Clone, Copy)]
struct Record {
    allocation: Allocation,
    pins: u32,
    live: bool,
    /// JavaScript looks at it, and only JavaScript can end its views.
    viewed: bool,
}

/// Who asks for a removal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Remover {
    /// The arena's owner, who ends the views first.
    Owner,
    /// A caller from C, who knows nothing of views.
    Stranger,
}

/// Why nothing was removed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Unknown,
    Pinned(Allocation),
    Viewed(Allocation),
}

/// Bump allocation hands out ascending addresses, so records are appended nearly always; removed ones are only marked, and swept when they
/// are the majority. Appending and removing the youngest take constant time, everything else a binary search; no call is ever linear more
/// often than it was paid for.
#[derive(Default)]
pub(super) struct Ledger {
    records: Vec<Record>,
    live: usize,
    bytes: usize,
    pins: usize,
}

/// Fewer dead records than this are not worth a sweep.
const SWEEP_MINIMUM: usize = 64;

impl Ledger {
    pub fn live_count(&self) -> usize {
        self.live
    }

    pub fn live_bytes(&self) -> usize {
        self.bytes
    }

    /// In the order of addresses.
    pub fn live(&self) -> impl Iterator<Item = Allocation> + '_ {
        self.records.iter().filter(|record| record.live).map(|record| record.allocation)
    }

    pub fn insert(&mut self, allocation: Allocation) {
        let record = Record { allocation, pins: 0, live: true, viewed: false };
        self.live += 1;
        self.bytes += allocation.bytes;
        match self.records.last() {
            // A thread that shares this ledger overtook us between claim and commit.
            Some(last) if last.allocation.address > allocation.address => {
                let at = self.records.partition_point(|r| r.allocation.address < allocation.address);
                self.records.insert(at, record);
            }
            _ => self.records.push(record),
        }
    }

    /// The allocation that holds the whole of `[address, address + length)`.
    pub fn containing(&self, address: usize, length: usize) -> Option<Allocation> {
        self.position_containing(address, length).map(|at| self.records[at].allocation)
    }

    /// Forbids removal of the allocation that holds the whole of `[address, address + length)` until as many `unpin` of what is returned.
    pub fn pin(&mut self, address: usize, length: usize) -> Option<Allocation> {
        let at = self.position_containing(address, length)?;
        self.records[at].pins += 1;
        self.pins += 1;
        Some(self.records[at].allocation)
    }

    pub fn unpin(&mut self, address: usize) {
        let at = self.position(address).expect("a pinned allocation stays");
        self.records[at].pins -= 1;
        self.pins -= 1;
    }

    /// The allocation that starts at `address`, where it has more than one pin.
    pub fn pinned_often(&self, address: usize) -> Option<Allocation> {
        let record = &self.records[self.position(address)?];
        (record.pins > 1).then_some(record.allocation)
    }

    /// Forbids strangers the removal of the allocation around `[address, address + length)` from now on.
    pub fn mark_viewed(&mut self, address: usize, length: usize) -> Option<Allocation> {
        let at = self.position_containing(address, length)?;
        self.records[at].viewed = true;
        Some(self.records[at].allocation)
    }

    pub fn remove(&mut self, address: usize, remover: Remover) -> Result<Allocation, Kept> {
        let at = self.position(address).ok_or(Kept::Unknown)?;
        let record = &mut self.records[at];
        let allocation = record.allocation;
        if record.pins > 0 {
            return Err(Kept::Pinned(allocation));
        }
        if record.viewed && remover == Remover::Stranger {
            return Err(Kept::Viewed(allocation));
        }
        record.live = false;
        self.live -= 1;
        self.bytes -= allocation.bytes;
        while self.records.last().is_some_and(|r| !r.live) {
            self.records.pop();
        }
        let dead = self.records.len() - self.live;
        if dead > SWEEP_MINIMUM && dead > self.live {
            self.records.retain(|r| r.live);
        }
        Ok(allocation)
    }

    pub fn pins(&self) -> usize {
        self.pins
    }

    pub fn any_pinned(&self) -> Option<Allocation> {
        if self.pins == 0 {
            return None;
        }
        self.records.iter().find(|r| r.pins > 0).map(|r| r.allocation)
    }

    /// Takes out everything.
    pub fn drain(&mut self) -> impl Iterator<Item = Allocation> {
        self.live = 0;
        self.bytes = 0;
        std::mem::take(&mut self.records).into_iter().filter(|r| r.live).map(|r| r.allocation)
    }

    fn position(&self, address: usize) -> Option<usize> {
        let last = self.records.last()?;
        if last.allocation.address == address {
            return Some(self.records.len() - 1);
        }
        let at = self.records.binary_search_by_key(&address, |r| r.allocation.address).ok()?;
        self.records[at].live.then_some(at)
    }

    fn position_containing(&self, address: usize, length: usize) -> Option<usize> {
        let end = address.checked_add(length)?;
        let at = self.records.partition_point(|r| r.allocation.address <= address).checked_sub(1)?;
        let Record { allocation, live, .. } = self.records[at];
        (live && end - allocation.address <= allocation.bytes).then_some(at)
    }
}
