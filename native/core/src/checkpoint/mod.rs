//! Headers and indexes of safetensors checkpoints: read in parallel, parsed without a tree,
//! validated whole, handed out as columns.
//!
//! Rules are those of the format's README and of the reference implementation (safetensors 0.8),
//! with these choices where the two differ: white space before the JSON is accepted, as are unknown
//! fields and a `__metadata__` of `null`; a key that occurs twice in any object is refused, and so
//! is every spelling that only the reference's deserializer lets through.

mod accident;
mod dtype;
mod file;
mod header;
mod index;
mod json;
mod names;
mod open;
mod parse;
mod table;
mod tensor;

pub use header::{HEADER_LIMIT_BYTES, Header};
pub use index::{INDEX_LIMIT_BYTES, Index, read_index};
pub use names::Names;
pub use open::{Headers, Shard, open_shards};
pub use table::{Columns, Table};

#[cfg(test)]
mod tests;

use crate::error::Error;

/// Largest integer that a JavaScript number holds exactly.
const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

/// Says in which file a rule was broken.
fn in_file(mut error: Error, path: &str) -> Error {
    error.message = format!("{}: {}", printable(path), error.message);
    error.with("file", path)
}

/// A path as it is, but for control characters.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
}

/// A name from a file, quoted, escaped and cut to a bearable length.
fn quoted(name: &str) -> String {
    const LIMIT: usize = 160;
    match name.char_indices().nth(LIMIT) {
        None => format!("{name:?}"),
        Some((end, _)) => format!("{:?}... ({} bytes)", &name[..end], name.len()),
    }
}
