//! The views that JavaScript has of an arena's memory.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ops::Range;
use std::rc::{Rc, Weak};

use mx_core::arena::{Allocation, View};
use mx_core::error::Error;
use napi::{Result, sys};

use crate::external::{Count, External};
use crate::failure::thrown;

/// Address of its first byte, and a number that no other view has.
type Key = (usize, u64);

struct Seen {
    external: Rc<External>,
    allocation: Allocation,
    length: usize,
}

/// Belongs to the arena's thread. Views leave it when their memory cannot be reached through them
/// any more.
#[derive(Default)]
pub struct Views {
    seen: RefCell<BTreeMap<Key, Seen>>,
    next: Cell<u64>,
}

/// What a view's buffer keeps: the memory, and its place among the views.
struct Entry {
    _view: View,
    views: Weak<Views>,
    key: Key,
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(views) = self.views.upgrade() {
            let seen = views.seen.borrow_mut().remove(&self.key);
            drop(seen);
        }
    }
}

/// Memory that views were moved from: the allocation, and `(address, bytes)` of the views in the
/// order of addresses.
pub type Moved = Vec<(Allocation, Vec<(usize, usize)>)>;

impl Views {
    /// An ArrayBuffer over the `length` bytes at `address`, which `view` keeps.
    pub fn create(self: &Rc<Self>, env: sys::napi_env, address: usize, length: usize, view: View) -> Result<sys::napi_value> {
        let key = (address, self.next.replace(self.next.get() + 1));
        let allocation = view.allocation();
        let entry = Entry { _view: view, views: Rc::downgrade(self), key };
        // SAFETY: the entry keeps memory of the host, and `env` is that of the call that this is a
        // part of.
        let (buffer, external) = unsafe { External::create(env, address as *mut c_void, length, Count::Uncounted, entry) }?;
        self.seen.borrow_mut().insert(key, Seen { external, allocation, length });
        Ok(buffer)
    }

    pub fn is_empty(&self) -> bool {
        self.seen.borrow().is_empty()
    }

    /// Detaches the views that begin in `range`, save for those whose memory was moved.
    pub fn end_within(&self, range: Range<usize>) {
        // Detaching takes them out.
        let within: Vec<_> = self.seen.borrow().range(keys(range)).map(|(_, seen)| Rc::clone(&seen.external)).collect();
        for external in within {
            external.detach();
        }
    }

    /// The views that begin in `range`, by allocation. After `end_within`: those that were moved.
    pub fn within(&self, range: Range<usize>) -> Moved {
        by_allocation(self.seen.borrow().range(keys(range)))
    }

    /// Those whose memory was moved, and is kept for good because the thread ends.
    pub fn kept(&self) -> Moved {
        by_allocation(self.seen.borrow().iter().filter(|(_, seen)| seen.external.kept()))
    }

    pub fn any_kept(&self) -> bool {
        self.seen.borrow().values().any(|seen| seen.external.kept())
    }

    /// ERR_ARENA_BUSY where the memory of a view that begins in `range` was moved: for memory that
    /// cannot be kept.
    pub fn require_unmoved(&self, operation: &'static str, range: Range<usize>) -> Result<()> {
        let seen = self.seen.borrow();
        let Some(((address, _), Seen { length, .. })) = seen.range(keys(range)).find(|(_, seen)| seen.external.moved()) else {
            return Ok(());
        };
        let message = format!(
            "{operation}: a stream of bytes or transfer() has moved the view of {length} bytes at {address:#x} into another buffer, or it was collected just now, and the backend's memory cannot be kept for it: let go of that buffer, and try again when the engine has collected it"
        );
        let error = Error::new("ERR_ARENA_BUSY", message)
            .with("operation", operation)
            .with("address", format!("{address:#x}"))
            .with("length", *length);
        Err(thrown(error))
    }
}

fn by_allocation<'seen>(views: impl Iterator<Item = (&'seen Key, &'seen Seen)>) -> Moved {
    let mut moved = Moved::new();
    for (&(address, _), Seen { allocation, length, .. }) in views {
        match moved.last_mut().filter(|(last, _)| last == allocation) {
            Some((_, views)) => views.push((address, *length)),
            None => moved.push((*allocation, vec![(address, *length)])),
        }
    }
    moved
}

fn keys(addresses: Range<usize>) -> Range<Key> {
    (addresses.start, 0)..(addresses.end, 0)
}
