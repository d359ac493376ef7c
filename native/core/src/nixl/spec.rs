//! What an agent is asked for.

use std::any::Any;
use std::sync::Arc;

use super::list::{Descriptor, Kind};
use crate::error::Result;

/// Something that has to live as long as NIXL may touch it: a pin of an arena, an open file.
pub type Keep = Arc<dyn Any + Send + Sync>;

/// Called once with the answer, on the agent's thread.
pub type Answer<T> = Box<dyn FnOnce(Result<T>) + Send>;

/// What to register.
pub struct RegistrationSpec {
    /// Row of the plugin in the agent's specification.
    pub plugin: usize,
    pub kind: Kind,
    pub descriptors: Vec<Descriptor>,
    /// Held until the registration is undone.
    pub keep: Vec<Keep>,
}

/// One side of a transfer.
pub struct Side {
    pub kind: Kind,
    pub descriptors: Vec<Descriptor>,
}

/// What to move.
pub struct TransferSpec {
    pub plugin: usize,
    pub write: bool,
    pub local: Side,
    pub remote: Side,
    /// Agent of the remote side; None for this one.
    pub agent: Option<String>,
    /// Registrations that cover both sides: none of them is undone before the transfer is released.
    pub registrations: Vec<u64>,
    /// File of the remote side, for errors.
    pub file: Option<String>,
}
