//! Many strings in one allocation, numbered in order of insertion, found by hash.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use crate::error::Result;
use crate::memory::room;

const FREE: u64 = u64::MAX;
const WHAT: &str = "the names of tensors";

fn slots_for(count: usize) -> usize {
    (count.max(4) * 2).next_power_of_two()
}

/// A set of strings. Row numbers are dense and stable. The hash is keyed, so that no file can be
/// made to collide.
#[derive(Clone, Debug, Default)]
pub struct Names {
    text: String,
    ends: Vec<usize>,
    /// Open addressing: hash (upper half) and row (lower half) of each string, or `FREE`. The
    /// length is a power of two, at most half in use. `hashbrown` keeps no hashes, and hashes all
    /// names anew as it grows: a checkpoint of 92,000 tensors opens 18% slower over it.
    slots: Vec<u64>,
    hasher: RandomState,
}

impl Names {
    /// ERR_ARENA_OUT_OF_MEMORY
    pub fn with_capacity(count: usize, bytes: usize) -> Result<Self> {
        let text = String::from_utf8(room(bytes, WHAT)?).unwrap_or_default();
        let mut slots = room(slots_for(count), WHAT)?;
        slots.resize(slots_for(count), FREE);
        Ok(Names { text, ends: room(count, WHAT)?, slots, ..Names::default() })
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// All strings, one after the other.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// End of each string in [`Names::text`], in bytes.
    pub fn ends(&self) -> &[usize] {
        &self.ends
    }

    pub fn get(&self, row: usize) -> &str {
        let begin = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.text[begin..self.ends[row]]
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|row| self.get(row))
    }

    pub fn find(&self, name: &str) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        self.probe(self.hash(name), name).ok()
    }

    /// Adds a string: its row, or the row that it already has.
    pub fn insert(&mut self, name: &str) -> std::result::Result<usize, usize> {
        if (self.len() + 1) * 2 > self.slots.len() {
            self.resize(self.len() * 2 + 8);
        }
        let hash = self.hash(name);
        match self.probe(hash, name) {
            Ok(row) => Err(row),
            Err(slot) => {
                let row = self.len();
                self.text.push_str(name);
                self.ends.push(self.text.len());
                self.slots[slot] = u64::from(hash) << 32 | row as u64;
                Ok(row)
            }
        }
    }

    fn hash(&self, name: &str) -> u32 {
        // The upper half is never all ones, so that no entry looks `FREE`.
        (self.hasher.hash_one(name) >> 33) as u32
    }

    /// Row of `name`, or the free slot where it belongs.
    fn probe(&self, hash: u32, name: &str) -> std::result::Result<usize, usize> {
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            let entry = self.slots[slot];
            if entry == FREE {
                return Err(slot);
            }
            let row = entry as u32 as usize;
            if (entry >> 32) as u32 == hash && self.get(row) == name {
                return Ok(row);
            }
            slot = (slot + 1) & mask;
        }
    }

    /// Makes room for `count` strings.
    fn resize(&mut self, count: usize) {
        let size = slots_for(count);
        let mask = size - 1;
        let mut slots = vec![FREE; size];
        for entry in self.slots.iter().copied().filter(|entry| *entry != FREE) {
            let mut slot = (entry >> 32) as usize & mask;
            while slots[slot] != FREE {
                slot = (slot + 1) & mask;
            }
            slots[slot] = entry;
        }
        self.slots = slots;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn behaves_like_a_map_to_first_positions(words in prop::collection::vec("[a-c]{0,4}|\\PC{0,6}", 0..200)) {
            let mut names = Names::default();
            let mut model: HashMap<String, usize> = HashMap::new();
            for word in &words {
                let expected = match model.get(word) {
                    Some(row) => Err(*row),
                    None => { model.insert(word.clone(), model.len()); Ok(model.len() - 1) }
                };
                prop_assert_eq!(names.insert(word), expected);
            }
            prop_assert_eq!(names.len(), model.len());
            for (word, row) in &model {
                prop_assert_eq!(names.find(word), Some(*row));
                prop_assert_eq!(names.get(*row), word.as_str());
            }
            prop_assert_eq!(names.find("zz-not-there"), None);
        }
    }
}
