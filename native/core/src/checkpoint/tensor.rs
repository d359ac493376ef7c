//! One tensor's entry in a header, and the rules that it obeys on its own.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::dtype::{dtype, dtype_names, dtype_row};
use super::header::{Header, Place};
use super::json::{Keys, ReadObject, Skip, Text, duplicate_key, fail};
use super::{MAX_SAFE_INTEGER, quoted};
use crate::error::{Error, Result};

/// Reads the entry of the tensor whose name was added last.
pub struct Entry<'h>(pub &'h mut Header);

enum Field {
    Dtype,
    Shape,
    Offsets,
    Other(String),
}

impl ReadObject for Entry<'_> {
    const EXPECTED: &'static str = "an object with dtype, shape and data_offsets";

    fn read<'de, A: MapAccess<'de>>(self, mut entries: A) -> std::result::Result<(), A::Error> {
        let header = self.0;
        let (mut row, mut shape, mut range) = (None, None, None);
        let mut others = Keys::default();
        let first_dim = header.dims.len();
        loop {
            header.place = Place::Tensor("");
            let key = Text { failure: &mut header.failure, expected: "a field name", then: |key: &str| Ok(field(key)) };
            let Some(key) = entries.next_key_seed(key)? else {
                break;
            };
            let twice = match key {
                Field::Dtype => {
                    header.place = Place::Tensor("dtype");
                    let value = Text { failure: &mut header.failure, expected: "a string", then: known_dtype };
                    row.replace(entries.next_value_seed(value)?).map(|_| duplicate_key("dtype"))
                }
                Field::Shape => {
                    header.place = Place::Tensor("shape");
                    shape.replace(entries.next_value_seed(Shape(&mut header.dims))?).map(|()| duplicate_key("shape"))
                }
                Field::Offsets => {
                    header.place = Place::Tensor("data_offsets");
                    range.replace(entries.next_value_seed(Offsets)?).map(|_| duplicate_key("data_offsets"))
                }
                Field::Other(key) => {
                    let added = others.add(key);
                    entries.next_value_seed(Skip(&mut header.failure))?;
                    added.err()
                }
            };
            if let Some(error) = twice {
                header.place = Place::Tensor("");
                return Err(fail(&mut header.failure, error));
            }
        }
        header.place = Place::Tensor("");
        let row = row.ok_or_else(|| A::Error::missing_field("dtype"))?;
        shape.ok_or_else(|| A::Error::missing_field("shape"))?;
        let (begin, end) = range.ok_or_else(|| A::Error::missing_field("data_offsets"))?;
        check(row, &header.dims[first_dim..], begin, end, header.data_start)
            .map_err(|error| fail::<A::Error>(&mut header.failure, error))?;
        header.push(row, begin, end);
        Ok(())
    }
}

fn field(key: &str) -> Field {
    match key {
        "dtype" => Field::Dtype,
        "shape" => Field::Shape,
        "data_offsets" => Field::Offsets,
        other => Field::Other(other.to_owned()),
    }
}

fn known_dtype(name: &str) -> Result<u8> {
    dtype_row(name).ok_or_else(|| {
        Error::new("ERR_CHECKPOINT_UNKNOWN_DTYPE", format!("dtype {} is none of {}", quoted(name), dtype_names())).with("dtype", name)
    })
}

/// Appends the dimensions.
struct Shape<'h>(&'h mut Vec<u64>);

impl<'de> DeserializeSeed<'de> for Shape<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Shape<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of unsigned integers")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> std::result::Result<(), A::Error> {
        while let Some(dim) = items.next_element::<u64>()? {
            self.0.push(dim);
        }
        Ok(())
    }
}

/// `[begin, end]`, and nothing after it.
struct Offsets;

impl<'de> DeserializeSeed<'de> for Offsets {
    type Value = (u64, u64);
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<(u64, u64), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Offsets {
    type Value = (u64, u64);
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of exactly two unsigned integers")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> std::result::Result<(u64, u64), A::Error> {
        let begin = items.next_element()?.ok_or_else(|| A::Error::invalid_length(0, &self))?;
        let end = items.next_element()?.ok_or_else(|| A::Error::invalid_length(1, &self))?;
        match items.next_element::<u64>()? {
            None => Ok((begin, end)),
            Some(_) => Err(A::Error::invalid_length(3, &self)),
        }
    }
}

/// The rules of one tensor: offsets in order and within 64 bits, shape times dtype without
/// overflow, whole bytes, and equal to the range.
fn check(row: u8, dims: &[u64], begin: u64, end: u64, data_start: u64) -> Result<()> {
    let (name, bits) = dtype(row);
    let described = |error: Error| error.with("dtype", name).with("shape", shape_text(dims)).with("begin", begin).with("end", end);
    if end < begin {
        let message = format!("data_offsets [{begin}, {end}] end before they begin");
        return Err(described(Error::new("ERR_CHECKPOINT_OFFSETS", message)));
    }
    if data_start.checked_add(end).is_none() {
        let message = format!("data_offsets end {end} behind a header that ends at {data_start} overflows 64 bits");
        return Err(described(Error::new("ERR_CHECKPOINT_OVERFLOW", message)));
    }
    // From left to right as in the reference: a 0 in front of what would overflow makes the tensor
    // empty, behind it comes too late.
    let elements = dims.iter().try_fold(1u64, |product, dim| product.checked_mul(*dim));
    let Some(total_bits) = elements.and_then(|elements| elements.checked_mul(bits)) else {
        let message = format!("shape {} of {name} ({bits} bits) overflows 64 bits", shape_text(dims));
        return Err(described(Error::new("ERR_CHECKPOINT_OVERFLOW", message)));
    };
    if total_bits % 8 != 0 {
        let message = format!("shape {} of {name} makes {total_bits} bits, which do not end at a byte", shape_text(dims));
        return Err(described(Error::new("ERR_CHECKPOINT_SUBBYTE_MISALIGNED", message)));
    }
    let (needed, given) = (total_bits / 8, end - begin);
    if needed != given {
        let message = format!("shape {} of {name} needs {needed} bytes, data_offsets [{begin}, {end}] hold {given}", shape_text(dims));
        let error = Error::new("ERR_CHECKPOINT_SIZE_MISMATCH", message);
        return Err(described(error.with("expectedBytes", needed).with("actualBytes", given)));
    }
    if let Some(dim) = dims.iter().find(|dim| **dim > MAX_SAFE_INTEGER) {
        let message = format!("dimension {dim} is above 2^53 - 1, the largest integer that a JavaScript number holds exactly");
        return Err(described(Error::new("ERR_CHECKPOINT_UNREPRESENTABLE", message)));
    }
    Ok(())
}

/// A shape for a message: long ones are cut.
fn shape_text(dims: &[u64]) -> String {
    const LIMIT: usize = 16;
    let shown: Vec<String> = dims.iter().take(LIMIT).map(u64::to_string).collect();
    let rest = if dims.len() > LIMIT { format!(", ... {} dimensions", dims.len()) } else { String::new() };
    format!("[{}{rest}]", shown.join(", "))
}
