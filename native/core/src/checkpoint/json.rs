//! JSON read as a stream, with duplicate keys refused at every depth.
//!
//! serde_json supplies the grammar (UTF-8, escapes, numbers, a nesting limit of 128). The visitors
//! of this folder supply the meaning: they take only what the format names, where a derived
//! `Deserialize` would let other spellings through.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::quoted;
use crate::error::Error;

/// Where a visitor leaves the rule that was broken before it stops serde with an error that carries
/// no more than text.
pub type Failure = Option<Error>;

/// Why serde stopped, when it was no rule of ours.
pub struct Stop {
    /// Not JSON; otherwise JSON of the wrong type.
    pub syntax: bool,
    pub what: String,
    /// Byte of the text where it was noticed; that may be one beside.
    pub offset: usize,
}

/// Keeps `error` and gives serde the error that ends the parse.
pub fn fail<E: serde::de::Error>(failure: &mut Failure, error: Error) -> E {
    *failure = Some(error);
    E::custom("")
}

pub fn duplicate_key(key: &str) -> Error {
    Error::new("ERR_CHECKPOINT_DUPLICATE_KEY", format!("the key {} occurs twice in one JSON object", quoted(key))).with("key", key)
}

/// Parses one whole document.
pub fn parse<'de, S: DeserializeSeed<'de>>(text: &'de str, seed: S) -> Result<S::Value, Stop> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = seed.deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    value.map_err(|error| {
        let line_start = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum::<usize>();
        let offset = (line_start + error.column().saturating_sub(1)).min(text.len());
        let full = error.to_string();
        let mut what = full.rsplit_once(" at line ").map_or(full.as_str(), |(what, _)| what).to_owned();
        let syntax = matches!(error.classify(), serde_json::error::Category::Syntax | serde_json::error::Category::Eof);
        match text.as_bytes().get(offset) {
            Some(byte) if syntax && !byte.is_ascii_graphic() => what += &format!(" (byte 0x{byte:02x})"),
            _ => what = what.replace("expected u64", "expected an unsigned 64-bit integer"),
        }
        Stop { syntax, what, offset }
    })
}

/// What reads the entries of one JSON object.
pub trait ReadObject {
    /// What should stand there, for the message when something else does.
    const EXPECTED: &'static str;
    fn read<'de, A: MapAccess<'de>>(self, entries: A) -> Result<(), A::Error>;
}

/// serde's frame around a [`ReadObject`].
pub struct Object<R>(pub R);

impl<'de, R: ReadObject> DeserializeSeed<'de> for Object<R> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, R: ReadObject> Visitor<'de> for Object<R> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(R::EXPECTED)
    }
    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<(), A::Error> {
        self.0.read(entries)
    }
}

/// A string that is handed to a function as it stands in the text, without a copy unless it has
/// escapes.
pub struct Text<'f, F> {
    pub failure: &'f mut Failure,
    pub expected: &'static str,
    pub then: F,
}

impl<'de, T, F: FnOnce(&str) -> Result<T, Error>> DeserializeSeed<'de> for Text<'_, F> {
    type Value = T;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<T, F: FnOnce(&str) -> Result<T, Error>> Visitor<'_> for Text<'_, F> {
    type Value = T;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        (self.then)(text).map_err(|error| fail(self.failure, error))
    }
}

/// Any value, checked and dropped. serde's own `IgnoredAny` would skip the checks of nesting,
/// surrogates and keys.
pub struct Skip<'f>(pub &'f mut Failure);

impl<'de> DeserializeSeed<'de> for Skip<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Skip<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }
    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Skip(self.0))?.is_some() {}
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut keys = Keys::default();
        while let Some(key) = entries.next_key::<String>()? {
            keys.add(key).map_err(|error| fail::<A::Error>(self.0, error))?;
            entries.next_value_seed(Skip(self.0))?;
        }
        Ok(())
    }
}

/// The keys of one object that nobody asked for. Empty, and without an allocation, nearly always.
#[derive(Default)]
pub struct Keys(HashSet<String>);

impl Keys {
    pub fn add(&mut self, key: String) -> Result<(), Error> {
        match self.0.replace(key) {
            None => Ok(()),
            Some(key) => Err(duplicate_key(&key)),
        }
    }
}
