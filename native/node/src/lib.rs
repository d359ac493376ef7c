//! Node-API binding: the only crate that sees JavaScript. Thin: converts columns, threads and
//! errors, decides nothing.

mod arena;
mod background;
mod blocks;
mod c_symbols;
mod checkpoint;
mod claims;
mod cuda;
mod digest;
mod external;
mod failure;
#[cfg(feature = "faults")]
mod faults;
mod nixl;
mod support;
mod transfer;
