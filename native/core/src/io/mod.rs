//! Moving bytes from files into memory.
//!
//! A [`transfer::Transfer`] reads *pieces* (file range to address) that JavaScript planned. Pieces that are neighbours in the file form a run;
//! runs are cut into blocks, the unit of one read. Blocks travel through two lanes: the buffered lane (threads, page cache) and the direct lane
//! (io_uring with O_DIRECT, or threads where io_uring is refused or not known to be sound, see [`file_systems`]). [`residency`] tells which lane a
//! part of a file should take.

mod bounce;
mod buffered;
pub mod cache_use;
mod direct;
pub mod fault;
pub mod file;
pub mod file_systems;
pub mod identity;
pub mod layout;
pub mod map;
mod overlay;
mod residency;
mod shared;
pub mod support;
pub mod sys;
pub mod transfer;
mod uring;

#[cfg(test)]
mod tests;
