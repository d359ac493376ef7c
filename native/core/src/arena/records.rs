//! Records of allocations, in the order of their addresses.

/// One live allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    pub address: usize,
    pub bytes: usize,
    /// What the backend gave for it.
    pub handle: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Live,
    /// Its owner is about to give it back.
    Taken,
    /// Freed; its memory goes with the last pin or view.
    Freed,
    /// Without memory, until it is swept.
    Gone,
}

#[derive(Clone, Copy)]
struct Record {
    allocation: Allocation,
    pins: u32,
    views: u32,
    state: State,
}

impl Record {
    fn held(&self) -> bool {
        self.pins > 0 || self.views > 0
    }
}

/// What becomes of an allocation that somebody frees.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Removal {
    /// There is none at this address.
    Unknown,
    Pinned(Allocation),
    /// Out of the records: the caller gives its memory back.
    Removed(Allocation),
    /// Alive to nobody any more, but views or pins are left.
    Held(Allocation),
}

/// Bump allocation hands out ascending addresses, so records are appended nearly always; removed
/// ones are only marked, and swept when they are the majority. Appending and removing the youngest
/// take constant time, everything else a binary search; no call is ever linear more often than it
/// was paid for.
#[derive(Default)]
pub(super) struct Records {
    all: Vec<Record>,
    /// Records with memory, and their bytes.
    count: usize,
    bytes: usize,
    pins: usize,
}

/// Fewer records than this without memory are not worth a sweep.
const SWEEP_MINIMUM: usize = 64;

impl Records {
    /// Allocations that have memory: those that are alive, and those that were freed and are still
    /// held.
    pub fn count(&self) -> usize {
        self.count
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// In the order of addresses.
    pub fn live(&self) -> impl Iterator<Item = Allocation> + '_ {
        self.all.iter().filter(|record| record.state == State::Live).map(|record| record.allocation)
    }

    pub fn insert(&mut self, allocation: Allocation) {
        let record = Record { allocation, pins: 0, views: 0, state: State::Live };
        self.count += 1;
        self.bytes += allocation.bytes;
        match self.all.last() {
            // Another thread overtook us between claim and commit.
            Some(last) if last.allocation.address > allocation.address => {
                let at = self.all.partition_point(|r| r.allocation.address < allocation.address);
                self.all.insert(at, record);
            }
            _ => self.all.push(record),
        }
    }

    /// The live allocation that holds the whole of `[address, address + length)`.
    pub fn containing(&self, address: usize, length: usize) -> Option<Allocation> {
        self.position_containing(address, length).map(|at| self.all[at].allocation)
    }

    /// Forbids removal of the allocation that holds the whole of `[address, address + length)`
    /// until as many `unpin` of what is returned.
    pub fn pin(&mut self, address: usize, length: usize) -> Option<Allocation> {
        let at = self.position_containing(address, length)?;
        self.all[at].pins += 1;
        self.pins += 1;
        Some(self.all[at].allocation)
    }

    /// The allocation, removed, where it was freed before and this was the last that held it.
    pub fn unpin(&mut self, address: usize) -> Option<Allocation> {
        let at = self.position(address).expect("a pinned allocation stays");
        self.all[at].pins -= 1;
        self.pins -= 1;
        self.remove_unheld(at)
    }

    /// As `pin`, for memory that JavaScript sees.
    pub fn view(&mut self, address: usize, length: usize) -> Option<Allocation> {
        let at = self.position_containing(address, length)?;
        self.all[at].views += 1;
        Some(self.all[at].allocation)
    }

    /// As `unpin`.
    pub fn unview(&mut self, address: usize) -> Option<Allocation> {
        let at = self.position(address).expect("memory that is seen stays");
        self.all[at].views -= 1;
        self.remove_unheld(at)
    }

    /// Takes an allocation out for its owner; where views are left, `settle` must follow.
    pub fn take(&mut self, address: usize) -> Removal {
        let Some(at) = self.live_position(address) else { return Removal::Unknown };
        let record = &mut self.all[at];
        let allocation = record.allocation;
        if record.pins > 0 {
            return Removal::Pinned(allocation);
        }
        if record.views > 0 {
            record.state = State::Taken;
            return Removal::Held(allocation);
        }
        self.remove(at);
        Removal::Removed(allocation)
    }

    /// Ends a `take` that left views: false where some are still left. The last of them then
    /// removes the allocation.
    pub fn settle(&mut self, address: usize) -> bool {
        let at = self.position(address).expect("what was taken stays until it is settled");
        let held = self.all[at].held();
        if held {
            self.all[at].state = State::Freed;
        } else {
            self.remove(at);
        }
        !held
    }

    /// Frees an allocation at once, or with the last that holds it.
    pub fn free(&mut self, address: usize) -> Removal {
        let Some(at) = self.live_position(address) else { return Removal::Unknown };
        let allocation = self.all[at].allocation;
        if self.all[at].held() {
            self.all[at].state = State::Freed;
            return Removal::Held(allocation);
        }
        self.remove(at);
        Removal::Removed(allocation)
    }

    pub fn pins(&self) -> usize {
        self.pins
    }

    pub fn any_pinned(&self) -> Option<Allocation> {
        if self.pins == 0 {
            return None;
        }
        self.all.iter().find(|r| r.pins > 0).map(|r| r.allocation)
    }

    /// Takes everything out that is not held, in the order of addresses; what is held counts as
    /// freed, and what its owner has taken stays his.
    pub fn drain(&mut self) -> Vec<Allocation> {
        let records = std::mem::take(&mut self.all);
        let mut out = Vec::with_capacity(self.count);
        for mut record in records.into_iter().filter(|record| record.state != State::Gone) {
            match record.state {
                State::Taken => {}
                _ if record.held() => record.state = State::Freed,
                _ => {
                    self.count -= 1;
                    self.bytes -= record.allocation.bytes;
                    out.push(record.allocation);
                    continue;
                }
            }
            self.all.push(record);
        }
        out
    }

    fn remove_unheld(&mut self, at: usize) -> Option<Allocation> {
        let record = self.all[at];
        if record.state != State::Freed || record.held() {
            return None;
        }
        self.remove(at);
        Some(record.allocation)
    }

    fn remove(&mut self, at: usize) {
        let record = &mut self.all[at];
        record.state = State::Gone;
        self.count -= 1;
        self.bytes -= record.allocation.bytes;
        while self.all.last().is_some_and(|r| r.state == State::Gone) {
            self.all.pop();
        }
        let gone = self.all.len() - self.count;
        if gone > SWEEP_MINIMUM && gone > self.count {
            self.all.retain(|r| r.state != State::Gone);
        }
    }

    fn live_position(&self, address: usize) -> Option<usize> {
        self.position(address).filter(|at| self.all[*at].state == State::Live)
    }

    /// Of the record that starts at `address` and has memory.
    fn position(&self, address: usize) -> Option<usize> {
        let last = self.all.last()?;
        if last.allocation.address == address {
            return Some(self.all.len() - 1);
        }
        let at = self.all.binary_search_by_key(&address, |r| r.allocation.address).ok()?;
        (self.all[at].state != State::Gone).then_some(at)
    }

    fn position_containing(&self, address: usize, length: usize) -> Option<usize> {
        let end = address.checked_add(length)?;
        let at = self.all.partition_point(|r| r.allocation.address <= address).checked_sub(1)?;
        let Record { allocation, state, .. } = self.all[at];
        (state == State::Live && end - allocation.address <= allocation.bytes).then_some(at)
    }
}
