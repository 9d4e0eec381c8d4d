//! A JSON deserializer for serde that skips fast.
//!
//! Of a pod's six kilobytes a few hundred bytes are used. The rest is skipped by counting brackets
//! outside of strings, which is several times as fast as tokenizing it; in return, skipped values
//! are only checked to be well bracketed. Used values are checked as usual: strings are UTF-8,
//! numbers are numbers, and rare cases (escapes, fractions) are left to `serde_json`. The recursion
//! is no deeper than that of the types, and skipping does not recurse, so that no input can exhaust
//! the stack.

mod skip;

use std::ops::Range;

use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::Error;
use wide::u8x16;

/// A value in a buffer, to be read once.
#[derive(Debug)]
pub(crate) struct Json<'de> {
    input: &'de [u8],
    /// The input as text, if all of it is UTF-8 without control characters, as it is unless it was
    /// pretty-printed: then no string in it needs a check.
    text: Option<&'de str>,
    at: usize,
}

/// The elements of a list or an object.
struct Inside<'j, 'de> {
    json: &'j mut Json<'de>,
    is_first: bool,
}

/// The key of an object. Keys with escapes are rare enough to be copied.
struct Key<'j, 'de>(&'j mut Json<'de>);

/// A string between its quotes.
enum Found<'de> {
    Plain(Range<usize>),
    /// With its quotes, for `serde_json` to decode the escapes.
    Escaped(&'de [u8]),
}

impl<'de> Json<'de> {
    pub(crate) fn new(input: &'de [u8]) -> Self {
        // A line may include its end, which is a control character.
        let input = input.trim_ascii_end();
        let text = str::from_utf8(input).ok();
        let text = text.filter(|_| !has_controls(input));
        Self { input, text, at: 0 }
    }

    /// Checks that only blanks follow.
    pub(crate) fn end(&mut self) -> Result<(), Error> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(wrong("trailing characters")),
        }
    }

    /// The error with the place up to which all was well.
    pub(crate) fn locate(&self, error: &Error) -> Error {
        Error::custom(format_args!("{error} at byte {}", self.at))
    }

    /// The next byte that is no blank, without taking it.
    #[inline]
    fn peek(&mut self) -> Option<u8> {
        match self.input.get(self.at) {
            Some(byte) if *byte > b' ' => Some(*byte),
            _ => self.peek_behind_blanks(),
        }
    }

    /// Servers write no blanks; people do.
    #[cold]
    fn peek_behind_blanks(&mut self) -> Option<u8> {
        loop {
            let byte = *self.input.get(self.at)?;
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    #[inline]
    fn take(&mut self, expected: u8, name: &str) -> Result<(), Error> {
        if self.peek() != Some(expected) {
            return Err(wrong(name));
        }
        self.at += 1;
        Ok(())
    }

    fn literal<T>(&mut self, text: &str, value: T) -> Result<T, Error> {
        let end = self.at + text.len();
        if self.input.get(self.at..end) != Some(text.as_bytes()) {
            return Err(wrong("expected a value"));
        }
        self.at = end;
        Ok(value)
    }

    /// Takes a string; its opening quote is next.
    #[inline]
    fn string(&mut self) -> Result<Found<'de>, Error> {
        let start = self.at + 1;
        // Keys and most values are so short that one look is enough.
        let rest = self.input.get(start..).unwrap_or_default();
        if let Some(lane) = rest.first_chunk() {
            let found = quotes_and_backslashes(*lane).trailing_zeros() as usize;
            if rest.get(found) == Some(&b'"') && found < lane.len() {
                self.at = start + found + 1;
                return Ok(Found::Plain(start..start + found));
            }
        }
        self.long_string(start)
    }

    fn long_string(&mut self, start: usize) -> Result<Found<'de>, Error> {
        let (end, is_plain) =
            string_end(self.input, start).ok_or_else(|| wrong("string without an end"))?;
        self.at = end + 1;
        if is_plain {
            return Ok(Found::Plain(start..end));
        }
        let quoted = self.input.get(start - 1..=end).map(Found::Escaped);
        quoted.ok_or_else(|| wrong("string without an end"))
    }

    /// A string without escapes, that is kept.
    #[inline]
    fn plain(&self, place: Range<usize>) -> Result<&'de str, Error> {
        if let Some(text) = self.text.and_then(|text| text.get(place.clone())) {
            return Ok(text);
        }
        self.plain_if_sound(place)
    }

    #[cold]
    fn plain_if_sound(&self, place: Range<usize>) -> Result<&'de str, Error> {
        let bytes = self.input.get(place).unwrap_or_default();
        if bytes.iter().any(|byte| *byte < b' ') {
            return Err(wrong("control character in a string"));
        }
        str::from_utf8(bytes).map_err(|_| wrong("string is not UTF-8"))
    }

    fn visit_string<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Error> {
        match self.string()? {
            Found::Plain(place) => visitor.visit_borrowed_str(self.plain(place)?),
            Found::Escaped(quoted) => visitor.visit_string(serde_json::from_slice(quoted)?),
        }
    }

    fn visit_number<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Error> {
        let rest = self.input.get(self.at..).unwrap_or_default();
        let is_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        let length = rest.iter().take_while(|byte| is_number(byte)).count();
        let number = rest.get(..length).unwrap_or_default();
        let value: serde_json::Number = serde_json::from_slice(number)?;
        self.at += length;
        value.deserialize_any(visitor)
    }

    /// Passes over a value, whatever it is.
    fn skip(&mut self) -> Result<(), Error> {
        match self.peek() {
            Some(b'"') => self.string().map(drop),
            Some(b'{' | b'[') => self.skip_brackets(),
            _ => {
                // `true`, `-1.5e3` and their like; errors in them do not matter.
                let rest = self.input.get(self.at..).unwrap_or_default();
                let belongs =
                    |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
                let length = rest.iter().take_while(|byte| belongs(byte)).count();
                if length == 0 {
                    return Err(wrong("expected a value"));
                }
                self.at += length;
                Ok(())
            }
        }
    }

    fn skip_brackets(&mut self) -> Result<(), Error> {
        let rest = self.input.get(self.at..).unwrap_or_default();
        self.at += skip::bracketed(rest).ok_or_else(|| wrong("brackets without an end"))?;
        Ok(())
    }
}

impl<'de> Deserializer<'de> for &mut Json<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.peek() {
            Some(b'"') => self.visit_string(visitor),
            Some(b'{') => {
                self.at += 1;
                let mut inside = Inside {
                    json: self,
                    is_first: true,
                };
                let value = visitor.visit_map(&mut inside)?;
                inside.json.take(b'}', "object without an end")?;
                Ok(value)
            }
            Some(b'[') => {
                self.at += 1;
                let mut inside = Inside {
                    json: self,
                    is_first: true,
                };
                let value = visitor.visit_seq(&mut inside)?;
                inside.json.take(b']', "list without an end")?;
                Ok(value)
            }
            Some(b'-' | b'0'..=b'9') => self.visit_number(visitor),
            Some(b't') => {
                let value = self.literal("true", true)?;
                visitor.visit_bool(value)
            }
            Some(b'f') => {
                let value = self.literal("false", false)?;
                visitor.visit_bool(value)
            }
            Some(b'n') => {
                self.literal("null", ())?;
                visitor.visit_unit()
            }
            _ => Err(wrong("expected a value")),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.peek() == Some(b'n') {
            self.literal("null", ())?;
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.skip()?;
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct enum identifier
    }
}

impl<'de> MapAccess<'de> for &mut Inside<'_, 'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        if !self.has_next(b'}')? {
            return Ok(None);
        }
        if self.json.peek() != Some(b'"') {
            return Err(wrong("expected a key"));
        }
        seed.deserialize(Key(self.json)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        self.json.take(b':', "expected a colon")?;
        seed.deserialize(&mut *self.json)
    }
}

impl<'de> SeqAccess<'de> for &mut Inside<'_, 'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        if !self.has_next(b']')? {
            return Ok(None);
        }
        seed.deserialize(&mut *self.json).map(Some)
    }
}

impl Inside<'_, '_> {
    /// Whether another entry follows; takes the comma before it.
    #[inline]
    fn has_next(&mut self, close: u8) -> Result<bool, Error> {
        if self.json.peek() == Some(close) {
            return Ok(false);
        }
        if !std::mem::take(&mut self.is_first) {
            self.json.take(b',', "expected a comma")?;
        }
        Ok(true)
    }
}

impl<'de> Deserializer<'de> for Key<'_, 'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0.string()? {
            Found::Plain(place) => visitor.visit_borrowed_str(self.0.plain(place)?),
            Found::Escaped(quoted) => {
                let text: String = serde_json::from_slice(quoted)?;
                text.into_deserializer().deserialize_any(visitor)
            }
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

#[cold]
fn wrong(what: &str) -> Error {
    Error::custom(what)
}

/// Returns the index of the closing quote of the string that starts at `from`, and whether it has
/// no escape.
fn string_end(input: &[u8], from: usize) -> Option<(usize, bool)> {
    let mut at = from;
    let mut is_plain = true;
    loop {
        let rest = input.get(at..)?;
        at += quote_or_backslash(rest)?;
        if input.get(at) == Some(&b'"') {
            return Some((at, is_plain));
        }
        // Whatever is escaped, it does not end the string.
        is_plain = false;
        at += 2;
    }
}

/// Whether there is a control character: whether the least of all bytes is one.
fn has_controls(input: &[u8]) -> bool {
    let (lanes, tail) = input.as_chunks::<16>();
    let least = |least: u8x16, lane: &[u8; 16]| least.min(u8x16::new(*lane));
    let least = lanes.iter().fold(u8x16::splat(u8::MAX), least);
    least.reduce_min() < b' ' || tail.iter().any(|byte| *byte < b' ')
}

/// A bit for each `"` and `\`.
#[inline]
fn quotes_and_backslashes(lane: [u8; 16]) -> u32 {
    let lane = u8x16::new(lane);
    let found = lane.simd_eq(u8x16::splat(b'"')) | lane.simd_eq(u8x16::splat(b'\\'));
    found.to_bitmask()
}

/// The first `"` or `\`.
fn quote_or_backslash(bytes: &[u8]) -> Option<usize> {
    let (lanes, tail) = bytes.as_chunks::<16>();
    for (index, lane) in lanes.iter().enumerate() {
        let found = quotes_and_backslashes(*lane);
        if found != 0 {
            return Some(index * 16 + found.trailing_zeros() as usize);
        }
    }
    let found = tail.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
    Some(lanes.len() * 16 + found)
}

#[cfg(test)]
mod tests;
