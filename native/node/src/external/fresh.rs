//! Buffers that JavaScript was given in this turn of the event loop.
//!
//! The engine tells of a buffer that it collected in a later turn only; until then it looks like
//! one whose memory was moved. So a new buffer is kept for the turn: what opens, views and closes
//! memory without a pause finds the buffer, and knows that the memory is in it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::External;

/// A turn that makes more lets the oldest go.
const KEPT: usize = 1024;

thread_local!(static FRESH: RefCell<VecDeque<Rc<External>>> = RefCell::default());

pub fn keep(external: Rc<External>) {
    let oldest = FRESH.with_borrow_mut(|fresh| {
        fresh.push_back(external);
        if fresh.len() > KEPT { fresh.pop_front() } else { None }
    });
    if let Some(oldest) = oldest {
        oldest.let_go();
    }
}

/// A new turn begins.
pub fn let_go() {
    for external in FRESH.with_borrow_mut(std::mem::take) {
        external.let_go();
    }
}
