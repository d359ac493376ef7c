//! A shard's header as columns, and the rules that its tensors obey together.

use super::json::Failure;
use super::names::Names;
use super::quoted;
use crate::error::{Error, Result};

/// Longest header that the reference implementation reads or writes.
pub const HEADER_LIMIT_BYTES: u64 = 100_000_000;

/// Where the parser is, for messages.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Place {
    #[default]
    Top,
    Metadata,
    /// In the tensor added last, in this field of it.
    Tensor(&'static str),
}

/// A header that keeps every rule of the format. Columns are in the order of the header's text,
/// `order` gives that of the file.
#[derive(Debug, Default)]
pub struct Header {
    pub names: Names,
    /// Row in the dtype table.
    pub dtype: Vec<u8>,
    /// Offsets in the byte buffer, which starts at `data_start` of the file.
    pub begin: Vec<u64>,
    pub end: Vec<u64>,
    /// `dims[dim_end[i - 1]..dim_end[i]]` is the shape of tensor i.
    pub dim_end: Vec<usize>,
    pub dims: Vec<u64>,
    /// Rows sorted by (begin, end, row).
    pub order: Vec<u32>,
    /// `[key, value, key, value, ...]`
    pub metadata: Vec<String>,
    pub data_start: u64,
    pub(super) place: Place,
    pub(super) failure: Failure,
}

impl Header {
    /// Shape of a tensor.
    pub fn shape(&self, row: usize) -> &[u64] {
        let begin = if row == 0 { 0 } else { self.dim_end[row - 1] };
        &self.dims[begin..self.dim_end[row]]
    }

    /// Adds the columns of the tensor whose name and dimensions are already in.
    pub(super) fn push(&mut self, dtype: u8, begin: u64, end: u64) {
        self.dtype.push(dtype);
        self.begin.push(begin);
        self.end.push(end);
        self.dim_end.push(self.dims.len());
    }

    pub(super) fn about_tensor(&self, error: Error, row: usize) -> Error {
        let name = self.names.get(row);
        about(error, &format!("tensor {}", quoted(name))).with("tensor", name)
    }

    pub(super) fn sort(&mut self) {
        let key = |row: u32| (self.begin[row as usize], self.end[row as usize], row);
        let mut order: Vec<u32> = (0..self.dtype.len() as u32).collect();
        if !order.is_sorted_by_key(|row| key(*row)) {
            order.sort_unstable_by_key(|row| key(*row));
        }
        self.order = order;
    }

    /// Ranges start at 0 and follow each other without hole or overlap.
    pub(super) fn check_ranges(&self) -> Result<()> {
        let (mut expected, mut previous) = (0, None);
        for row in self.order.iter().map(|row| *row as usize) {
            let begin = self.begin[row];
            if begin != expected {
                let relation = if begin < expected { "overlap" } else { "leave a hole after" };
                let neighbour = match previous {
                    None => "the start of the byte buffer".to_owned(),
                    Some(previous) => {
                        format!("tensor {}, which ends", quoted(self.names.get(previous)))
                    }
                };
                let message = format!("data_offsets [{begin}, {}] {relation} {neighbour} at {expected}", self.end[row]);
                let error = Error::new("ERR_CHECKPOINT_OFFSETS", message).with("begin", begin).with("end", self.end[row]);
                return Err(self.about_tensor(error.with("expectedBegin", expected), row));
            }
            expected = self.end[row];
            previous = Some(row);
        }
        Ok(())
    }

    /// The last range ends where the file ends.
    pub(super) fn check_file_size(&self, actual: u64) -> Result<()> {
        let data_bytes = self.order.last().map_or(0, |row| self.end[*row as usize]);
        // No overflow: each tensor's end was checked.
        let expected = self.data_start + data_bytes;
        if actual == expected {
            return Ok(());
        }
        let error = if actual < expected {
            let message = format!(
                "the file has {actual} of the {expected} bytes that its header describes, {} missing: an incomplete download or copy",
                expected - actual
            );
            Error::new("ERR_CHECKPOINT_FILE_TRUNCATED", message)
        } else {
            let message =
                format!("{} bytes follow the last tensor: the header describes {expected} bytes, the file has {actual}", actual - expected);
            Error::new("ERR_CHECKPOINT_TRAILING_BYTES", message).with("offset", expected)
        };
        Err(error.with("expectedBytes", expected).with("actualBytes", actual))
    }
}

pub(super) fn about(mut error: Error, subject: &str) -> Error {
    error.message = format!("{subject}: {}", error.message);
    error
}
