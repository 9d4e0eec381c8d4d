//! Reads protobuf messages that this crate encoded. Other messages cause no panic, but yield
//! unspecified values.

use kubevitals_protobuf::read_varint;

use super::layout::entry::{KEY, VALUE};
use super::layout::quantity::TEXT;
use super::layout::{meta, object};

/// Iterates over the fields of a message: tags and values.
#[derive(Clone)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

#[derive(Clone, Copy)]
pub(crate) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The parts of an object's message.
#[derive(Clone, Copy, Default)]
pub(crate) struct Object<'a> {
    pub(crate) metadata: &'a [u8],
    /// Seconds since the epoch.
    pub(crate) timestamp: Option<i64>,
    /// Nanoseconds.
    pub(crate) window: i64,
    /// The remaining fields: containers, or the usage of a node.
    pub(crate) rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// Returns the bytes that have not been read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Skips these bytes if they come next.
    #[inline]
    pub(crate) fn skip_prefix(&mut self, expected: &[u8]) {
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

    // Out of line, to keep the common path short.
    #[inline(never)]
    fn long_number(&mut self) -> Option<u64> {
        read_varint(&mut self.rest)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u8, Value<'a>);

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
        Some((u8::try_from(tag).ok()?, value))
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

    /// Returns the first field of a nested message, a number: the value of a time or duration.
    pub(crate) fn inner_number(self) -> Option<i64> {
        match Fields::new(self.bytes()?).next()?.1 {
            Value::Number(number) => Some(number.cast_signed()),
            Value::Bytes(_) => None,
        }
    }
}

impl<'a> Object<'a> {
    pub(crate) fn read(message: &'a [u8]) -> Self {
        let mut parsed = Self::default();
        let mut fields = Fields::new(message);
        for expected in [object::METADATA, object::TIMESTAMP, object::WINDOW] {
            let Some((tag, value)) = fields.next() else {
                break;
            };
            match tag {
                _ if tag != expected => break,
                object::METADATA => parsed.metadata = value.bytes().unwrap_or_default(),
                object::TIMESTAMP => parsed.timestamp = value.inner_number(),
                _ => parsed.window = value.inner_number().unwrap_or_default(),
            }
        }
        parsed.rest = fields.rest();
        parsed
    }

    /// Returns the name in the metadata.
    pub(crate) fn name(&self) -> &'a str {
        Fields::new(self.metadata)
            .find(|(tag, _)| *tag == meta::NAME)
            .map_or("", |(_, value)| value.text())
    }
}

/// Returns the text of a quantity.
#[inline]
pub(crate) fn quantity(value: &[u8]) -> &[u8] {
    match value {
        [TEXT, len @ ..0x80, text @ ..] if usize::from(*len) == text.len() => text,
        _ => Fields::new(value)
            .next()
            .and_then(|(_, text)| text.bytes())
            .unwrap_or_default(),
    }
}

/// Returns the key and the value of a map entry.
#[inline]
pub(crate) fn key_and_value(entry: &[u8]) -> (&[u8], &[u8]) {
    short_pair(entry).unwrap_or_else(|| {
        let mut fields = Fields::new(entry);
        let mut next = || fields.next().and_then(|(_, value)| value.bytes());
        (next().unwrap_or_default(), next().unwrap_or_default())
    })
}

/// Returns the same if lengths take one byte, as they nearly always do.
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

/// Iterates over the names and quantities of resources: the map entries with this tag.
pub(crate) fn amounts(message: &[u8], tag: u8) -> impl Iterator<Item = (&str, &str)> {
    let entries = Fields::new(message).filter(move |(own, _)| *own == tag);
    entries.map(|(_, entry)| {
        let (mut name, mut amount) = ("", "");
        for (tag, value) in Fields::new(entry.bytes().unwrap_or_default()) {
            match tag {
                KEY => name = value.text(),
                VALUE => {
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
    use super::super::proto::put_bytes;
    use super::*;

    #[test]
    fn entries_and_quantities_of_any_length_are_read() {
        for (key, value) in [(0, 0), (1, 127), (127, 1), (128, 3), (3, 128), (300, 300)] {
            let (key, value) = (vec![b'k'; key], vec![b'v'; value]);
            let mut entry = Vec::new();
            put_bytes(&mut entry, KEY, &key);
            put_bytes(&mut entry, VALUE, &value);
            assert_eq!(key_and_value(&entry), (key.as_slice(), value.as_slice()));
            let mut encoded = Vec::new();
            put_bytes(&mut encoded, TEXT, &key);
            assert_eq!(quantity(&encoded), key);
        }
        // A truncated message yields unspecified values, but no panic.
        for cut in [&b""[..], b"\x0a", b"\x0a\x05k", b"\x0a\x01k\x12\x09v"] {
            let _ = (key_and_value(cut), quantity(cut));
        }
    }
}
