//! Node-API binding: the only crate that sees JavaScript. Thin: converts columns, threads and errors, decides nothing.

mod arena;
mod background;
mod checkpoint;
mod digest;
mod failure;
mod support;
mod transfer;
