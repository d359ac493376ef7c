//! Any sequence of calls against the simplest model that has the contract.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::tests::{BASE, PlannedBackend};
use super::{Arena, Pin};

const GRANULE: usize = 4096;
const TOTAL: usize = 64 * GRANULE;

#[derive(Clone, Debug)]
enum Step {
    Malloc {
        bytes: usize,
    },
    FailingMalloc {
        bytes: usize,
    },
    /// The choice picks among all addresses ever handed out, the offset moves away from it.
    Free {
        choice: usize,
        offset: usize,
    },
    Pin {
        choice: usize,
        offset: usize,
        length: usize,
    },
    Unpin {
        choice: usize,
    },
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![Just(0), 1..3 * GRANULE, Just(GRANULE), Just(TOTAL), Just(usize::MAX)];
    let offset = prop_oneof![4 => Just(0), 1 => 1..GRANULE];
    prop_oneof![
        8 => bytes.clone().prop_map(|bytes| Step::Malloc { bytes }),
        1 => bytes.prop_map(|bytes| Step::FailingMalloc { bytes }),
        8 => (any::<usize>(), offset).prop_map(|(choice, offset)| Step::Free { choice, offset }),
        3 => (any::<usize>(), 0..GRANULE, 0..2 * GRANULE).prop_map(|(choice, offset, length)| Step::Pin { choice, offset, length }),
        3 => any::<usize>().prop_map(|choice| Step::Unpin { choice }),
        1 => Just(Step::Close),
    ]
}

#[derive(Default)]
struct Model {
    used: usize,
    live: BTreeMap<usize, usize>,
    ever: Vec<usize>,
    pins: Vec<(usize, Pin)>,
    closed: bool,
}

impl Model {
    fn pinned(&self, address: usize) -> bool {
        self.pins.iter().any(|(pinned, _)| *pinned == address)
    }

    fn pick(&self, choice: usize) -> usize {
        if self.ever.is_empty() { BASE } else { self.ever[choice % self.ever.len()] }
    }

    fn malloc(&mut self, arena: &Arena, backend: &PlannedBackend, bytes: usize, fails: bool) {
        let fits = bytes.checked_next_multiple_of(GRANULE).filter(|rounded| *rounded <= TOTAL - self.used);
        backend.fail_next_allocate(fails);
        let outcome = arena.malloc(bytes).map_err(|error| error.code);
        backend.fail_next_allocate(false);
        match (bytes, fits) {
            (0, _) => assert_eq!(outcome, Err("ERR_ARENA_SIZE")),
            _ if self.closed && bytes <= TOTAL => assert_eq!(outcome, Err("ERR_ARENA_CLOSED")),
            _ if self.closed => assert!(outcome.is_err()),
            (_, None) => assert_eq!(outcome, Err("ERR_ARENA_EXHAUSTED")),
            (_, Some(rounded)) => {
                let address = BASE + self.used;
                self.used += rounded;
                self.ever.push(address);
                if fails {
                    assert_eq!(outcome, Err("ERR_ARENA_OUT_OF_MEMORY"));
                } else {
                    assert_eq!(outcome, Ok(address));
                    self.live.insert(address, rounded);
                }
            }
        }
    }

    fn free(&mut self, arena: &Arena, address: usize) {
        let expected = if self.closed || !self.live.contains_key(&address) {
            Ok(false)
        } else if self.pinned(address) {
            Err("ERR_ARENA_BUSY")
        } else {
            self.live.remove(&address);
            Ok(true)
        };
        assert_eq!(arena.free(address).map_err(|error| error.code), expected);
    }

    fn pin(&mut self, arena: &Arc<Arena>, address: usize, length: usize) {
        let holder = self.live.range(..=address).next_back().filter(|(start, bytes)| address + length <= **start + **bytes);
        match arena.pin(address, length) {
            Ok(pin) => self.pins.push((*holder.expect("a holder").0, pin)),
            Err(error) => {
                assert!(self.closed || holder.is_none());
                assert_eq!(error.code, if self.closed { "ERR_ARENA_CLOSED" } else { "ERR_ARENA_ADDRESS" });
            }
        }
    }

    fn close(&mut self, arena: &Arena) {
        let expected = if self.closed {
            Ok(false)
        } else if !self.pins.is_empty() {
            Err("ERR_ARENA_BUSY")
        } else {
            self.closed = true;
            self.live.clear();
            Ok(true)
        };
        assert_eq!(arena.close().map_err(|error| error.code), expected);
    }

    fn agrees_with(&self, arena: &Arena, backend: &PlannedBackend) {
        let stats = arena.stats();
        assert_eq!(stats.used_bytes, self.used);
        assert_eq!(stats.live_allocation_count, self.live.len());
        assert_eq!(stats.mapped_bytes, self.live.values().sum::<usize>());
        assert_eq!(stats.pins, self.pins.len());
        assert_eq!(stats.closed, self.closed);
        assert_eq!(backend.mapped(), self.live.clone().into_iter().collect::<Vec<_>>());
        assert_eq!(backend.released(), self.closed);
    }
}

fn removed(removal: super::records::Removal) -> Option<u64> {
    match removal {
        super::records::Removal::Removed(allocation) => Some(allocation.handle),
        _ => None,
    }
}

proptest! {
    #[test]
    fn any_sequence_of_calls_agrees_with_the_model(steps in proptest::collection::vec(step(), 0..120)) {
        let backend = Arc::new(PlannedBackend::new(GRANULE));
        let arena = Arc::new(Arena::with_backend(Box::new(Arc::clone(&backend)), TOTAL).unwrap());
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Malloc { bytes } => model.malloc(&arena, &backend, bytes, false),
                Step::FailingMalloc { bytes } => model.malloc(&arena, &backend, bytes, true),
                Step::Free { choice, offset } => { let address = model.pick(choice) + offset; model.free(&arena, address) }
                Step::Pin { choice, offset, length } => { let address = model.pick(choice) + offset; model.pin(&arena, address, length) }
                Step::Unpin { choice } => if !model.pins.is_empty() { let at = choice % model.pins.len(); model.pins.swap_remove(at); },
                Step::Close => model.close(&arena),
            }
            model.agrees_with(&arena, &backend);
        }
        model.pins.clear();
        drop(arena);
        prop_assert!(backend.mapped().is_empty());
        prop_assert!(backend.released());
    }

    #[test]
    fn the_ledger_agrees_with_a_map(operations in proptest::collection::vec((any::<bool>(), 0usize..300), 0..900)) {
        let mut records = super::records::Records::default();
        let mut model = BTreeMap::new();
        let mut ever = std::collections::BTreeSet::new();
        for (insert, key) in operations {
            let address = key * 64;
            // Addresses never repeat.
            if insert && ever.insert(address) {
                records.insert(super::Allocation { address, bytes: 64, handle: key as u64 });
                model.insert(address, key as u64);
            } else {
                prop_assert_eq!(removed(records.take(address)), model.remove(&address));
            }
            prop_assert_eq!(records.count(), model.len());
            prop_assert_eq!(records.bytes(), 64 * model.len());
            prop_assert_eq!(records.containing(address + 3, 61).map(|a| a.address), model.contains_key(&address).then_some(address));
            prop_assert!(records.containing(address + 3, 62).is_none());
        }
        prop_assert_eq!(records.drain().into_iter().map(|a| a.address).collect::<Vec<_>>(), model.into_keys().collect::<Vec<_>>());
    }
}
