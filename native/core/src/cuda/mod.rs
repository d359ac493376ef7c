//! NVIDIA's CUDA driver, found at run time: nothing is linked, and a machine without it gets an
//! ordinary error.

mod api;
mod backend;
mod copy;
mod current;
mod device;
mod failure;
mod library;
mod staging;
mod types;

#[cfg(all(test, not(loom)))]
mod copy_tests;
#[cfg(all(test, not(loom)))]
mod stand_in;
#[cfg(all(test, not(loom)))]
mod tests;

pub use api::CudaApi;
pub use backend::{CudaBackend, HandleType, Notice};
pub use copy::Piece;
pub use current::current_device;
pub use device::{Abilities, CudaDevice, device_facts};
pub use failure::Failure;
pub use library::open;
pub use staging::{Staging, StagingSpec};
