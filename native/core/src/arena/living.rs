//! What is alive at one moment, and what lies between.

use super::{Allocation, Arena};

pub struct Living {
    /// In the order of addresses.
    pub allocations: Vec<Allocation>,
    pub holes: Holes,
}

/// What lies between the first allocation that is alive and the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holes {
    /// Addresses without memory. They never have any again: addresses are given out once.
    Empty,
    /// Perhaps memory that is being allocated or given back just now.
    Moving,
    /// Perhaps memory that was freed and goes with the last pin or view of it.
    Held,
}

impl Arena {
    pub fn living(&self) -> Living {
        let state = self.lock();
        let allocations: Vec<_> = state.records.live().collect();
        let holes = if state.claims > 0 || state.giving_back > 0 {
            Holes::Moving
        } else if state.records.count() > allocations.len() {
            Holes::Held
        } else {
            Holes::Empty
        };
        Living { allocations, holes }
    }
}
