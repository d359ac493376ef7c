//! Memory, arena, checkpoint headers and byte movement. No Node in here: everything is tested with `cargo test`.

pub mod arena;
pub mod checkpoint;
pub mod cuda;
pub mod digest;
pub mod error;
pub mod io;
pub mod memory;
pub mod nixl;
mod parallel;
pub mod pool;
pub mod vmm;
