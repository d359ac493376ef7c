//! `*.safetensors.index.json`: which shard holds which tensor. Its names are untrusted; whoever
//! opens files by them checks them first.

use serde::de::{Error as _, MapAccess};

use super::accident::recognise;
use super::file::CheckpointFile;
use super::json::{self, Failure, Keys, Object, ReadObject, Skip, Text, duplicate_key, fail};
use super::names::Names;
use super::{in_file, quoted};
use crate::error::{Error, Result};

/// Longest index that is read. The largest known has 24 MB.
pub const INDEX_LIMIT_BYTES: u64 = 1 << 28;

/// A validated index. Only its weight map counts.
#[derive(Debug, Default)]
pub struct Index {
    /// Tensors, in the order of the weight map.
    pub names: Names,
    /// Row in `files` for each tensor.
    pub file_of: Vec<u32>,
    /// Distinct file names, in order of first mention; neither empty nor with a NUL, otherwise
    /// untrusted.
    pub files: Names,
    failure: Failure,
}

/// Reads and parses an index file.
pub fn read_index(path: &str) -> Result<Index> {
    let file = CheckpointFile::open(path)?;
    let size = file.size();
    if size > INDEX_LIMIT_BYTES {
        let message = format!("the index has {size} bytes, the limit is {INDEX_LIMIT_BYTES}");
        return Err(in_file(
            Error::new("ERR_CHECKPOINT_INDEX_INVALID", message).with("actualBytes", size).with("limit", INDEX_LIMIT_BYTES),
            path,
        ));
    }
    let bytes = file.read(0, size as usize)?;
    drop(file);
    Index::parse(&bytes).map_err(|error| in_file(error, path))
}

impl Index {
    pub fn parse(bytes: &[u8]) -> Result<Index> {
        if bytes.is_empty() {
            return Err(Error::new("ERR_CHECKPOINT_INDEX_INVALID", "the index is empty"));
        }
        let invalid = |what: String, offset: usize| {
            let error = Error::new("ERR_CHECKPOINT_INDEX_INVALID", format!("the index is invalid: {what} near file offset {offset}"));
            // That it is JSON is no accident here.
            if bytes[0] == b'{' { error.with("offset", offset) } else { recognise(error.with("offset", offset), bytes) }
        };
        let text = std::str::from_utf8(bytes).map_err(|error| invalid("not UTF-8".to_owned(), error.valid_up_to()))?;
        let mut index = Index::default();
        if let Err(stop) = json::parse(text, Object(Top(&mut index))) {
            return Err(index.failure.take().unwrap_or_else(|| invalid(stop.what, stop.offset)));
        }
        if index.names.is_empty() {
            return Err(Error::new("ERR_CHECKPOINT_INDEX_INVALID", "the weight_map of the index is empty: it names no tensor"));
        }
        Ok(index)
    }
}

/// The object of the index.
struct Top<'i>(&'i mut Index);

impl ReadObject for Top<'_> {
    const EXPECTED: &'static str = "an object with weight_map";

    fn read<'de, A: MapAccess<'de>>(self, mut entries: A) -> std::result::Result<(), A::Error> {
        let index = self.0;
        let mut keys = Keys::default();
        let mut mapped = false;
        while let Some(key) = entries.next_key::<String>()? {
            let is_map = key == "weight_map";
            keys.add(key).map_err(|error| fail::<A::Error>(&mut index.failure, error))?;
            if is_map {
                mapped = true;
                entries.next_value_seed(Object(WeightMap(index)))?;
            } else {
                entries.next_value_seed(Skip(&mut index.failure))?;
            }
        }
        if mapped { Ok(()) } else { Err(A::Error::missing_field("weight_map")) }
    }
}

/// Tensor name to file name.
struct WeightMap<'i>(&'i mut Index);

impl ReadObject for WeightMap<'_> {
    const EXPECTED: &'static str = "a weight_map object from tensor names to file names";

    fn read<'de, A: MapAccess<'de>>(self, mut entries: A) -> std::result::Result<(), A::Error> {
        let Index { names, file_of, files, failure } = self.0;
        loop {
            let then = |name: &str| names.insert(name).map(|_| ()).map_err(|_| duplicate_key(name).with("tensor", name));
            if entries.next_key_seed(Text { failure, expected: "a tensor name", then })?.is_none() {
                return Ok(());
            }
            let tensor = names.get(names.len() - 1);
            let then = |file: &str| {
                if file.is_empty() || file.contains('\0') {
                    let message = format!("the index maps tensor {} to {}, which is no file name", quoted(tensor), quoted(file));
                    return Err(Error::new("ERR_CHECKPOINT_INDEX_INVALID", message).with("tensor", tensor));
                }
                Ok(match files.insert(file) {
                    Ok(row) | Err(row) => row as u32,
                })
            };
            file_of.push(entries.next_value_seed(Text { failure, expected: "a file name", then })?);
        }
    }
}
