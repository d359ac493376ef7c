//! Memory, arena, checkpoint headers and byte movement. No Node in here: everything is tested with
//! `cargo test`.

pub mod arena;
pub mod checkpoint;
pub mod cuda;
pub mod digest;
pub mod error;
pub mod io;
pub mod memory;
pub mod nixl;
pub mod parallel;
pub mod pool;
mod sync;
pub mod sys;
pub mod vmm;
