//! The tensors of all shards as one table: what JavaScript sees of them.

use super::header::Header;
use super::index::Index;
use super::names::Names;
use super::{printable, quoted};
use crate::error::{Error, Result};
use crate::memory::room;

/// Parallel columns, one entry per tensor, sorted by (shard, file offset, position in the header).
/// Numbers are as JavaScript takes them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Columns {
    /// Row in the dtype table.
    pub dtype: Vec<u8>,
    pub shard: Vec<u32>,
    /// Offset in the shard's file.
    pub offset: Vec<f64>,
    pub length: Vec<f64>,
    /// `dims[dim_end[i - 1]..dim_end[i]]` is the shape of tensor i.
    pub dim_end: Vec<u32>,
    pub dims: Vec<f64>,
}

/// Columns with their names.
#[derive(Debug, Default)]
pub struct Table {
    pub names: Names,
    pub columns: Columns,
}

/// Which tensors of which shard count: an index, and the shard for each of its files.
#[derive(Clone, Copy)]
pub struct Assignment<'a> {
    pub index: &'a Index,
    pub shard_of_file: &'a [u32],
}

impl Table {
    /// Joins the headers of `paths`. With an assignment what it does not name is left out, and what
    /// it names must be there; without one, a name may occur only once.
    pub fn merge(headers: &[Header], paths: &[String], assignment: Option<Assignment<'_>>) -> Result<Table> {
        let count = headers.iter().map(|header| header.order.len()).sum();
        let bytes = headers.iter().map(|header| header.names.text().len()).sum();
        let dims: usize = headers.iter().map(|header| header.dims.len()).sum();
        if u32::try_from(count).is_err() || u32::try_from(dims).is_err() {
            let message = format!("{count} tensors with {dims} dimensions in all are more than the 2^32 - 1 that this package counts to");
            return Err(Error::new("ERR_CHECKPOINT_UNREPRESENTABLE", message));
        }
        let mut table = Table { names: Names::with_capacity(count, bytes)?, columns: Columns::with_capacity(count, dims)? };
        let named = assignment.map_or(0, |given| given.index.names.len());
        let mut found = room(named, "the tensors of an index")?;
        found.resize(named, false);
        for (shard, header) in headers.iter().enumerate() {
            for row in header.order.iter().map(|row| *row as usize) {
                let name = header.names.get(row);
                if let Some(Assignment { index, shard_of_file }) = assignment {
                    let Some(entry) = index.names.find(name) else {
                        continue;
                    };
                    if shard_of_file[index.file_of[entry] as usize] as usize != shard {
                        continue;
                    }
                    found[entry] = true;
                }
                if let Err(other) = table.names.insert(name) {
                    return Err(in_two_shards(name, &paths[table.columns.shard[other] as usize], &paths[shard]));
                }
                table.columns.push(shard, header, row);
            }
        }
        match (assignment, found.iter().position(|found| !found)) {
            (Some(assignment), Some(entry)) => Err(not_in_shard(&assignment, entry, &found, paths)),
            _ => Ok(table),
        }
    }
}

impl Columns {
    fn with_capacity(count: usize, dims: usize) -> Result<Self> {
        const WHAT: &str = "the columns of a checkpoint";
        Ok(Columns {
            dtype: room(count, WHAT)?,
            shard: room(count, WHAT)?,
            offset: room(count, WHAT)?,
            length: room(count, WHAT)?,
            dim_end: room(count, WHAT)?,
            dims: room(dims, WHAT)?,
        })
    }

    fn push(&mut self, shard: usize, header: &Header, row: usize) {
        self.dtype.push(header.dtype[row]);
        self.shard.push(shard as u32);
        // Exact: offsets lie within a file of at most 2^53 - 1 bytes, dimensions were checked.
        self.offset.push((header.data_start + header.begin[row]) as f64);
        self.length.push((header.end[row] - header.begin[row]) as f64);
        self.dims.extend(header.shape(row).iter().map(|dim| *dim as f64));
        self.dim_end.push(self.dims.len() as u32);
    }
}

fn in_two_shards(name: &str, first: &str, second: &str) -> Error {
    let message = format!(
        "tensor {} is in {} and in {}: without an index nothing says which counts",
        quoted(name),
        printable(first),
        printable(second)
    );
    Error::new("ERR_CHECKPOINT_DUPLICATE_TENSOR", message).with("tensor", name).with("file", second).with("otherFile", first)
}

fn not_in_shard(assignment: &Assignment<'_>, entry: usize, found: &[bool], paths: &[String]) -> Error {
    let index = assignment.index;
    let name = index.names.get(entry);
    let shard = assignment.shard_of_file[index.file_of[entry] as usize] as usize;
    let missing = found.iter().filter(|found| !**found).count();
    let more = if missing > 1 { format!(" ({missing} tensors are missing in all)") } else { String::new() };
    let message = format!(
        "the index assigns tensor {} to {}, which does not hold it{more}: index and shards are of different versions",
        quoted(name),
        printable(&paths[shard])
    );
    let error = Error::new("ERR_CHECKPOINT_INDEX_TENSOR_MISSING", message).with("tensor", name);
    error.with("file", paths[shard].as_str()).with("missing", missing)
}
