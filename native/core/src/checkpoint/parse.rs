//! From the JSON behind a shard's length prefix to its header.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};

use super::header::{Header, Place, about};
use super::json::{self, Object, ReadObject, Stop, Text, duplicate_key, fail};
use super::names::Names;
use super::tensor::Entry;
use crate::error::{Error, Result};

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
