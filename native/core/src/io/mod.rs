//! Moving bytes from files into memory.
//!
//! A [`transfer::Transfer`] reads *pieces* (file range to address) that JavaScript planned. Each
//! part has one concern, and imports run down this list only:
//!
//! | part | what |
//! |---|---|
//! | [`transfer`], [`map`], [`support`] | what the binding calls |
//! | `lanes` | what the threads do: `buffered` through the page cache, `direct` around it |
//! | `threads`, `shared` | the threads of one transfer, and what they share |
//! | [`policy`] | which way a part of a file goes, and why |
//! | `queue` | who takes which block, and when there can be no more |
//! | [`engine`] | who makes a read: `pread`, `uring`, wrappers in front of them |
//! | [`layout`], [`align`] | pieces that are neighbours in the file form a sequence; sequences are cut into blocks, the unit of one read |
//! | [`file`], [`identity`], [`file_systems`], `residency` | one file: the same from beginning to end, what its file system keeps, what is cached |

pub mod align;
mod bounce;
pub mod cache_use;
pub mod engine;
pub mod file;
pub mod file_systems;
pub mod identity;
mod lanes;
pub mod layout;
pub mod map;
mod overlay;
mod patience;
pub mod policy;
mod queue;
#[cfg(all(test, loom))]
mod queue_loom_tests;
pub mod residency;
pub mod settings;
mod shared;
pub mod support;
mod threads;
pub mod transfer;

#[cfg(all(test, not(loom)))]
mod tests;
