//! A shard's header: the JSON behind the length prefix, and the rules that its tensors obey together.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};

use super::json::{self, Failure, Object, ReadObject, Stop, Text, duplicate_key, fail};
use super::names::Names;
use super::quoted;
use super::tensor::Entry;
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

/// A header that keeps every rule of the format. Columns are in the order of the header's text, `order` gives that of the file.
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
    /// Parses the `bytes` of a header (without the length prefix) of a file of `file_bytes`.
    pub fn parse(bytes: &[u8], file_bytes: u64) -> Result<Header> {
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let offset = 8 + error.valid_up_to();
            Error::new("ERR_CHECKPOINT_HEADER_NOT_UTF8", format!("the header is not UTF-8: invalid byte at file offset {offset}"))
                .with("offset", offset)
        })?;
        let mut header = Header { data_start: 8 + bytes.len() as u64, ..Header::default() };
        match json::parse(text, Object(Top(&mut header))) {
            Err(stop) => return Err(header.explain(stop)),
            Ok(()) => header.place = Place::Top,
        }
        header.sort();
        header.check_ranges()?;
        header.check_file_size(file_bytes)?;
        Ok(header)
    }

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

    /// The rule that was broken, or what serde found, with the tensor concerned.
    fn explain(mut self, stop: Stop) -> Error {
        let offset = 8 + stop.offset;
        let error = match self.failure.take() {
            Some(error) => error,
            None if stop.syntax => {
                let message = format!("the header is not one JSON document: {} near file offset {offset}", stop.what);
                return Error::new("ERR_CHECKPOINT_HEADER_NOT_JSON", message).with("offset", offset);
            }
            None => {
                let code = if self.place == Place::Metadata { "ERR_CHECKPOINT_METADATA" } else { "ERR_CHECKPOINT_HEADER_TYPE" };
                Error::new(code, format!("{} near file offset {offset}", stop.what)).with("offset", offset)
            }
        };
        match self.place {
            Place::Top => about(error, "header"),
            Place::Metadata => about(error, "__metadata__"),
            Place::Tensor(field) => {
                let error = if field.is_empty() { error } else { about(error, field).with("field", field) };
                self.about_tensor(error, self.names.len() - 1)
            }
        }
    }

    fn about_tensor(&self, error: Error, row: usize) -> Error {
        let name = self.names.get(row);
        about(error, &format!("tensor {}", quoted(name))).with("tensor", name)
    }

    fn sort(&mut self) {
        let key = |row: u32| (self.begin[row as usize], self.end[row as usize], row);
        let mut order: Vec<u32> = (0..self.dtype.len() as u32).collect();
        if !order.is_sorted_by_key(|row| key(*row)) {
            order.sort_unstable_by_key(|row| key(*row));
        }
        self.order = order;
    }

    /// Ranges start at 0 and follow each other without hole or overlap.
    fn check_ranges(&self) -> Result<()> {
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
    fn check_file_size(&self, actual: u64) -> Result<()> {
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

fn about(mut error: Error, subject: &str) -> Error {
    error.message = format!("{subject}: {}", error.message);
    error
}

/// The object of the header.
struct Top<'h>(&'h mut Header);

impl ReadObject for Top<'_> {
    const EXPECTED: &'static str = "an object of tensors";

    fn read<'de, A: MapAccess<'de>>(self, mut entries: A) -> std::result::Result<(), A::Error> {
        let header = self.0;
        let mut metadata_seen = false;
        loop {
            header.place = Place::Top;
            let names = &mut header.names;
            let then = |key: &str| {
                if key == "__metadata__" {
                    let twice = std::mem::replace(&mut metadata_seen, true);
                    return if twice { Err(duplicate_key(key)) } else { Ok(Place::Metadata) };
                }
                match names.insert(key) {
                    Ok(_) => Ok(Place::Tensor("")),
                    Err(_) => Err(duplicate_key(key).with("tensor", key)),
                }
            };
            let Some(place) = entries.next_key_seed(Text { failure: &mut header.failure, expected: "a tensor name", then })? else {
                return Ok(());
            };
            header.place = place;
            match place {
                Place::Metadata => entries.next_value_seed(Metadata(header))?,
                _ => entries.next_value_seed(Object(Entry(header)))?,
            }
        }
    }
}

/// `__metadata__`: strings to strings, or null for none.
struct Metadata<'h>(&'h mut Header);

impl<'de> DeserializeSeed<'de> for Metadata<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Metadata<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of strings")
    }

    fn visit_unit<E>(self) -> std::result::Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> std::result::Result<(), A::Error> {
        let header = self.0;
        let mut keys = Names::default();
        while let Some(key) = entries.next_key::<String>()? {
            if keys.insert(&key).is_err() {
                return Err(fail(&mut header.failure, duplicate_key(&key)));
            }
            header.metadata.push(key);
            header.metadata.push(entries.next_value()?);
        }
        Ok(())
    }
}
