//! A pin that JavaScript holds.

use std::cell::Cell;

use mx_core::arena::Pin;
use napi_derive::napi;

/// Keeps an allocation from being freed. Collected unreleased it releases itself.
#[napi]
pub struct NativePin {
    pin: Cell<Option<Pin>>,
}

impl NativePin {
    pub fn new(pin: Pin) -> Self {
        NativePin { pin: Cell::new(Some(pin)) }
    }
}

#[napi]
impl NativePin {
    /// A second call does nothing.
    #[napi]
    pub fn release(&self) {
        drop(self.pin.take());
    }
}
