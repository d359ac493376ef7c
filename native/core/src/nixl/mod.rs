//! NIXL over its C interface, found at run time: agents, registrations, transfers.
//!
//! One native thread owns an agent and makes all its calls. A request is released only once its
//! status is final, whatever the plugin: POSIX frees a request that is still being read into,
//! GDS_MT blocks until it has ended.

mod agent;
mod api;
mod file;
mod list;
mod spec;
mod state;
mod status;
mod thread;
mod transfer;
pub mod ucx_settings;
mod wait;

#[cfg(all(test, not(loom)))]
mod tests;

pub use agent::{AgentSpec, PluginSpec};
pub use api::{NixlApi, why_not_loadable};
pub use file::HeldFile;
pub use list::{Descriptor, Kind};
pub use spec::{Answer, Keep, RegistrationSpec, Side, TransferSpec};
pub use thread::AgentThread;
