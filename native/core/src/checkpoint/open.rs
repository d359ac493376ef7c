//! Opening the shards of a checkpoint: headers read and validated by several threads, joined in the
//! order of the paths.

use std::sync::{Mutex, PoisonError};

use super::accident::recognise;
use super::file::{CheckpointFile, DioAlign};
use super::header::{HEADER_LIMIT_BYTES, Header};
use super::table::{Assignment, Table};
use super::{in_file, index::Index};
use crate::error::{Error, Result};
use crate::io::cache_use::CacheUse;
use crate::io::identity::Identity;
use crate::parallel::each_index;

/// Read at once from the start of a file; most headers of sharded checkpoints lie in it.
const FIRST_READ_BYTES: u64 = 128 << 10;

/// What is known about a shard's file.
#[derive(Clone, Debug)]
pub struct Shard {
    pub identity: Identity,
    /// File offset of the first data byte.
    pub data_start: u64,
    pub align: DioAlign,
    pub cache_use: CacheUse,
    /// `[key, value, key, value, ...]`
    pub metadata: Vec<String>,
}

/// The validated headers of a checkpoint.
#[derive(Debug)]
pub struct Headers {
    pub shards: Vec<Shard>,
    pub table: Table,
}

/// Opens, reads, validates and closes all `paths`, with up to `threads` threads, this one among
/// them. At most one descriptor per thread is open. `index` and `shard_of_file` (row of `paths` for
/// each file of the index) restrict the tensors to what the index assigns to each shard. Of several
/// faults the one of the first shard is reported, whatever the threads' pace.
pub fn open_shards(paths: &[String], index: Option<(&Index, &[u32])>, threads: usize) -> Result<Headers> {
    let assignment = index.map(|(index, shard_of_file)| Assignment { index, shard_of_file });
    if let Some(given) = assignment {
        let in_range = given.shard_of_file.iter().all(|shard| (*shard as usize) < paths.len());
        if given.shard_of_file.len() != given.index.files.len() || !in_range {
            return Err(Error::new("ERR_INTERNAL", "the rows of an index's files do not fit its files"));
        }
    }
    let (shards, headers): (Vec<_>, Vec<_>) =
        read_all(paths, threads).map_err(|error| missing_shard(error, paths, index.is_some()))?.into_iter().unzip();
    let table = Table::merge(&headers, paths, assignment)?;
    Ok(Headers { shards, table })
}

type Opened = (Shard, Header);

fn read_all(paths: &[String], threads: usize) -> Result<Vec<Opened>> {
    let results: Mutex<Vec<Option<Result<Opened>>>> = Mutex::new(paths.iter().map(|_| None).collect());
    each_index("mx-headers", paths.len(), threads, |shard| {
        let result = open_shard(&paths[shard]);
        let opened = result.is_ok();
        results.lock().unwrap_or_else(PoisonError::into_inner)[shard] = Some(result);
        opened
    });
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    // `None` only behind a failure, which ends the collection before it: shards before a failed one
    // are still read.
    results.into_iter().flatten().collect()
}

fn open_shard(path: &str) -> Result<Opened> {
    let file = CheckpointFile::open(path)?;
    let size = file.size();
    let mut head = file.read(0, size.min(FIRST_READ_BYTES) as usize)?;
    let header_bytes = header_length(&head, size).map_err(|error| in_file(recognise(error, &head), path))?;
    let data_start = 8 + header_bytes;
    if let Some(rest) = data_start.checked_sub(head.len() as u64).filter(|rest| *rest > 0) {
        let read = head.len() as u64;
        file.read_to(&mut head, read, rest as usize)?;
    }
    let mut header = Header::parse(&head[8..data_start as usize], size).map_err(|error| {
        let unreadable = matches!(error.code, "ERR_CHECKPOINT_HEADER_NOT_JSON" | "ERR_CHECKPOINT_HEADER_NOT_UTF8");
        in_file(if unreadable { recognise(error, &head) } else { error }, path)
    })?;
    let metadata = std::mem::take(&mut header.metadata);
    let identity = file.identity(&head[..data_start as usize]);
    let (align, cache_use) = file.ways();
    Ok((Shard { identity, data_start, align, cache_use, metadata }, header))
}

/// The length prefix, held against the limit and the file's size before anything is allocated for
/// the header.
fn header_length(head: &[u8], size: u64) -> Result<u64> {
    let Some(prefix) = head.first_chunk::<8>() else {
        let what = if size == 0 { "the file is empty".to_owned() } else { format!("the file has {size} bytes") };
        let error =
            Error::new("ERR_CHECKPOINT_FILE_TOO_SMALL", format!("{what}: a safetensors file starts with a header length of 8 bytes"));
        return Err(error.with("actualBytes", size));
    };
    let length = u64::from_le_bytes(*prefix);
    if length > HEADER_LIMIT_BYTES {
        let message = format!("the first 8 bytes give a header of {length} bytes, the limit is {HEADER_LIMIT_BYTES}");
        return Err(Error::new("ERR_CHECKPOINT_HEADER_TOO_LARGE", message).with("headerBytes", length).with("limit", HEADER_LIMIT_BYTES));
    }
    let expected = 8 + length;
    if expected > size {
        let message =
            format!("the file has {size} bytes, its header alone ends at {expected}: an incomplete download, or no safetensors file");
        let error = Error::new("ERR_CHECKPOINT_HEADER_TRUNCATED", message).with("headerBytes", length);
        return Err(error.with("expectedBytes", expected).with("actualBytes", size));
    }
    Ok(length)
}

/// A file that is not there is a missing shard when it is one of several, and then all of them are
/// counted.
fn missing_shard(mut error: Error, paths: &[String], indexed: bool) -> Error {
    if error.code != "ERR_CHECKPOINT_NOT_FOUND" || (paths.len() == 1 && !indexed) {
        return error;
    }
    let missing = paths.iter().filter(|path| !std::path::Path::new(path).exists()).count();
    error.code = "ERR_CHECKPOINT_SHARD_MISSING";
    error.message += &format!("; {missing} of the checkpoint's {} shards are missing", paths.len());
    error.with("missing", missing).with("shards", paths.len())
}

#[cfg(test)]
pub(super) fn open_bytes(bytes: &[u8]) -> Result<Header> {
    let size = bytes.len() as u64;
    let header_bytes = header_length(bytes, size).map_err(|error| recognise(error, bytes))?;
    Header::parse(&bytes[8..8 + header_bytes as usize], size)
}
