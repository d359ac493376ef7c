//! What the threads of a transfer do: the buffered lane reads through the page cache and scouts
//! files, the direct lane reads around it.

pub mod buffered;
mod direct;
mod direct_read;
mod ordinary;
mod publish;
mod scout;
