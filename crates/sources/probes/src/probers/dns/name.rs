//! Domain names: on the wire, and as the text of zone files.

use super::message::DecodeError;
use super::wire::Reader;

/// A name that cannot be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NameError {
    #[error("a label of the name is empty")]
    EmptyLabel,
    #[error("a label of the name is longer than 63 bytes")]
    LongLabel,
    #[error("the name is longer than 255 bytes")]
    TooLong,
}

/// Maximum length of a name on the wire.
const MAX_NAME: usize = 255;

/// Encodes a name. A dot at its end makes no difference: names are always complete.
pub(crate) fn encode(name: &str) -> Result<Vec<u8>, NameError> {
    let mut wire = Vec::with_capacity(name.len().saturating_add(2));
    let name = name.strip_suffix('.').unwrap_or(name);
    if !name.is_empty() {
        for label in name.split('.') {
            let length = match u8::try_from(label.len()) {
                Ok(0) => return Err(NameError::EmptyLabel),
                Ok(length @ ..64) => length,
                _ => return Err(NameError::LongLabel),
            };
            wire.push(length);
            wire.extend_from_slice(label.as_bytes());
        }
    }
    wire.push(0);
    if wire.len() > MAX_NAME {
        return Err(NameError::TooLong);
    }
    Ok(wire)
}

/// Reads a name as text, with a dot at its end. Pointers must lead backwards, so that there is no
/// loop.
pub(crate) fn read(reader: &mut Reader<'_>) -> Result<String, DecodeError> {
    let mut text = String::new();
    let mut length = 1_usize;
    let mut from = reader.position();
    // Set once the name goes on elsewhere: `reader` then stays behind the pointer.
    let mut elsewhere: Option<Reader<'_>> = None;
    loop {
        let here = elsewhere.as_mut().unwrap_or(reader);
        let first = here.byte()?;
        match first {
            0 => break,
            1..=63 => {
                length = length.saturating_add(usize::from(first)).saturating_add(1);
                if length > MAX_NAME {
                    return Err(DecodeError::Name);
                }
                push_label(&mut text, here.take(usize::from(first))?);
            }
            0b1100_0000.. => {
                let low = here.byte()?;
                let to = usize::from(first & 0b0011_1111) << 8 | usize::from(low);
                if to >= from {
                    return Err(DecodeError::Name);
                }
                from = to;
                elsewhere = Some(reader.at(to)?);
            }
            _ => return Err(DecodeError::Name),
        }
    }
    if text.is_empty() {
        text.push('.');
    }
    Ok(text)
}

/// Appends a label and a dot. Special characters are escaped.
fn push_label(text: &mut String, label: &[u8]) {
    for &byte in label {
        match byte {
            b'.' | b' ' | b'\'' | b'@' | b';' | b'(' | b')' | b'"' | b'\\' => {
                text.push('\\');
                text.push(char::from(byte));
            }
            b'!'..=b'~' => text.push(char::from(byte)),
            _ => push_decimal(text, byte),
        }
    }
    text.push('.');
}

/// Appends a byte as `\DDD`.
pub(crate) fn push_decimal(text: &mut String, byte: u8) {
    text.push('\\');
    for divisor in [100, 10, 1] {
        text.push(char::from(b'0' + byte / divisor % 10));
    }
}
