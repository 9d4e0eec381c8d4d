//! Reading protobuf messages that this crate wrote itself. Nothing here panics on others, but
//! nothing is promised of what comes out.

use super::proto::{LEN, tag};

/// The tags of a map's entry; a quantity has its text where an entry has its key.
const KEY: u8 = tag(1, LEN);
const VALUE: u8 = tag(2, LEN);

/// The fields of a message, one after the other.
#[derive(Clone)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

/// What a field holds.
#[derive(Clone, Copy)]
pub(crate) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// An object, as far as it has been taken apart.
#[derive(Clone, Copy, Default)]
pub(crate) struct Object<'a> {
    pub(crate) metadata: &'a [u8],
    /// Seconds since the epoch; `None` if it is not known.
    pub(crate) timestamp: Option<i64>,
    /// Nanoseconds.
    pub(crate) window: i64,
    /// What follows: containers, or amounts.
    pub(crate) rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// What has not been read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Passes over what stands next if it is this.
    #[inline]
    pub(crate) fn pass(&mut self, expected: &[u8]) {
        if let Some(rest) = self.rest.strip_prefix(expected) {
            self.rest = rest;
        }
    }

    #[inline]
    fn number(&mut self) -> Option<u64> {
        let (&first, rest) = self.rest.split_first()?;
        if first < 0x80 {
            self.rest = rest;
            return Some(u64::from(first));
        }
        self.long_number()
    }

    fn long_number(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for (at, byte) in self.rest.iter().enumerate().take(10) {
            let shift = u32::try_from(at * 7).ok()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                self.rest = self.rest.get(at + 1..)?;
                return Some(value);
            }
        }
        None
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Value<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let tag = self.number()?;
        let value = match tag & 7 {
            0 => Value::Number(self.number()?),
            2 => {
                let len = usize::try_from(self.number()?).ok()?;
                let (content, rest) = self.rest.split_at_checked(len)?;
                self.rest = rest;
                Value::Bytes(content)
            }
            _ => return None,
        };
        Some((tag >> 3, value))
    }
}

impl<'a> Value<'a> {
    pub(crate) fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Number(_) => None,
        }
    }

    pub(crate) fn text(self) -> &'a str {
        self.bytes()
            .and_then(|bytes| str::from_utf8(bytes).ok())
            .unwrap_or_default()
    }

    /// The first field of a message, as a number: what times and durations are.
    pub(crate) fn inner_number(self) -> Option<i64> {
        match Fields::new(self.bytes()?).next()?.1 {
            Value::Number(number) => Some(number.cast_signed()),
            Value::Bytes(_) => None,
        }
    }
}

impl<'a> Object<'a> {
    /// Takes the message of an object apart.
    pub(crate) fn read(message: &'a [u8]) -> Self {
        let mut object = Self::default();
        let mut fields = Fields::new(message);
        for wanted in 1..=3 {
            let Some((number, value)) = fields.next() else {
                break;
            };
            match (wanted, number) {
                (1, 1) => object.metadata = value.bytes().unwrap_or_default(),
                (2, 2) => object.timestamp = value.inner_number(),
                (3, 3) => object.window = value.inner_number().unwrap_or_default(),
                _ => break,
            }
        }
        object.rest = fields.rest();
        object
    }

    /// The name in its metadata.
    pub(crate) fn name(&self) -> &'a str {
        Fields::new(self.metadata)
            .find(|(number, _)| *number == 1)
            .map_or("", |(_, value)| value.text())
    }
}

/// The text of a quantity.
#[inline]
pub(crate) fn quantity(value: &[u8]) -> &[u8] {
    match value {
        [KEY, len @ ..0x80, text @ ..] if usize::from(*len) == text.len() => text,
        _ => Fields::new(value)
            .next()
            .and_then(|(_, text)| text.bytes())
            .unwrap_or_default(),
    }
}

/// The key and the value of a map's entry.
#[inline]
pub(crate) fn key_and_value(entry: &[u8]) -> (&[u8], &[u8]) {
    short_pair(entry).unwrap_or_else(|| {
        let mut fields = Fields::new(entry);
        let mut next = || fields.next().and_then(|(_, value)| value.bytes());
        (next().unwrap_or_default(), next().unwrap_or_default())
    })
}

/// The same where lengths take one byte, as they nearly always do.
#[inline]
fn short_pair(entry: &[u8]) -> Option<(&[u8], &[u8])> {
    let [KEY, len @ ..0x80, rest @ ..] = entry else {
        return None;
    };
    let (key, rest) = rest.split_at_checked(usize::from(*len))?;
    match rest {
        [VALUE, len @ ..0x80, value @ ..] if usize::from(*len) == value.len() => Some((key, value)),
        _ => None,
    }
}

/// The names and texts of amounts: the entries of a map from name to quantity that are numbered
/// `field`.
pub(crate) fn amounts(message: &[u8], field: u64) -> impl Iterator<Item = (&str, &str)> {
    let entries = Fields::new(message).filter(move |(number, _)| *number == field);
    entries.map(|(_, entry)| {
        let (mut name, mut amount) = ("", "");
        for (number, value) in Fields::new(entry.bytes().unwrap_or_default()) {
            match number {
                1 => name = value.text(),
                2 => {
                    let text = quantity(value.bytes().unwrap_or_default());
                    amount = str::from_utf8(text).unwrap_or_default();
                }
                _ => {}
            }
        }
        (name, amount)
    })
}

#[cfg(test)]
mod tests {
    use super::super::proto::put_text;
    use super::*;

    #[test]
    fn a_pair_is_found_whatever_its_lengths() {
        for (key, value) in [(0, 0), (1, 127), (127, 1), (128, 3), (3, 128), (300, 300)] {
            let (key, value) = (vec![b'k'; key], vec![b'v'; value]);
            let mut entry = Vec::new();
            put_text(&mut entry, KEY, &key);
            put_text(&mut entry, VALUE, &value);
            assert_eq!(key_and_value(&entry), (key.as_slice(), value.as_slice()));
            let mut quantity_of_key = Vec::new();
            put_text(&mut quantity_of_key, KEY, &key);
            assert_eq!(quantity(&quantity_of_key), key);
        }
        // Cut short there is nothing to rely on, but it is no panic.
        for cut in [&b""[..], b"\x0a", b"\x0a\x05k", b"\x0a\x01k\x12\x09v"] {
            let _ = (key_and_value(cut), quantity(cut));
        }
    }
}
