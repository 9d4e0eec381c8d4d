//! Fields of protobuf messages, for the few messages that are written by hand.
//!
//! Nothing here knows of a schema: the caller gives the numbers and the order of fields, and so
//! decides the bytes. A library that generates code would need a compiler of schemas at build time,
//! for messages that could be counted on one's fingers.

mod read;

pub use read::{Field, Value, delimited, fields};

/// How a field is written.
#[derive(Clone, Copy)]
enum Kind {
    Varint = 0,
    Fixed64 = 1,
    Bytes = 2,
}

/// The longest varint has ten bytes.
const MAX_VARINT: usize = 10;

/// Writes a number in groups of seven bits.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(low_bits(value) | 0x80);
        value >>= 7;
    }
    out.push(low_bits(value));
}

/// How many bytes [`put_varint`] takes.
pub const fn varint_len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Writes an unsigned number, or a boolean.
pub fn put_uint(out: &mut Vec<u8>, field: u32, value: u64) {
    put_tag(out, field, Kind::Varint);
    put_varint(out, value);
}

/// Writes a signed number as `int32` and `int64`: in two's complement, not in zigzag.
pub fn put_int(out: &mut Vec<u8>, field: u32, value: i64) {
    put_uint(out, field, value.cast_unsigned());
}

/// Writes a signed number as `sint32` and `sint64`: in zigzag.
pub fn put_sint(out: &mut Vec<u8>, field: u32, value: i64) {
    put_uint(out, field, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

/// Writes a `double`.
pub fn put_double(out: &mut Vec<u8>, field: u32, value: f64) {
    put_tag(out, field, Kind::Fixed64);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Writes bytes.
pub fn put_bytes(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    put_tag(out, field, Kind::Bytes);
    put_varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// Writes text.
pub fn put_str(out: &mut Vec<u8>, field: u32, value: &str) {
    put_bytes(out, field, value.as_bytes());
}

/// Writes a message whose fields `fill` writes.
pub fn put_message(out: &mut Vec<u8>, field: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    put_tag(out, field, Kind::Bytes);
    put_delimited(out, fill);
}

/// Writes a length, and then what `fill` writes: a message of a stream of them.
pub fn put_delimited(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    // Most messages are short, and their length takes one byte: longer ones are moved once.
    let at = out.len();
    out.push(0);
    fill(out);
    let length = out.len() - at - 1;
    if let (Ok(short @ ..0x80), Some(place)) = (u8::try_from(length), out.get_mut(at)) {
        *place = short;
    } else {
        let mut bytes = Vec::with_capacity(MAX_VARINT);
        put_varint(&mut bytes, length as u64);
        out.splice(at..=at, bytes);
    }
}

/// Writes one entry of a `map<string, string>`.
pub fn put_entry(out: &mut Vec<u8>, field: u32, key: &str, value: &str) {
    put_message(out, field, |out| {
        put_str(out, 1, key);
        put_str(out, 2, value);
    });
}

fn put_tag(out: &mut Vec<u8>, field: u32, kind: Kind) {
    put_varint(out, u64::from(field) << 3 | kind as u64);
}

fn low_bits(value: u64) -> u8 {
    u8::try_from(value & 0x7f).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        #[test]
        fn what_is_written_can_be_read(
            field in 1_u32..1 << 20,
            number in any::<u64>(),
            signed in any::<i64>(),
            double in any::<f64>(),
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            text in ".{0,40}",
        ) {
            let mut out = Vec::new();
            put_uint(&mut out, field, number);
            put_int(&mut out, field, signed);
            put_sint(&mut out, field, signed);
            put_double(&mut out, field, double);
            put_bytes(&mut out, field, &bytes);
            put_message(&mut out, field, |out| {
                put_str(out, 1, &text);
                put_entry(out, 2, &text, "v");
                put_bytes(out, 3, &bytes);
            });
            let read = fields(&out).unwrap();
            prop_assert!(read.iter().all(|one| one.number == field));
            let values: Vec<Value<'_>> = read.iter().map(|one| one.value).collect();
            prop_assert_eq!(values[0].uint(), Some(number));
            prop_assert_eq!(values[1].int(), Some(signed));
            prop_assert_eq!(values[2].sint(), Some(signed));
            prop_assert_eq!(values[3].double().map(f64::to_bits), Some(double.to_bits()));
            prop_assert_eq!(values[4].bytes(), Some(bytes.as_slice()));
            let inner = fields(values[5].bytes().unwrap()).unwrap();
            prop_assert_eq!(inner[0].value.text(), Some(text.as_str()));
            let entry = fields(inner[1].value.bytes().unwrap()).unwrap();
            prop_assert_eq!(entry[0].value.text(), Some(text.as_str()));
            prop_assert_eq!(entry[1].value.text(), Some("v"));
            prop_assert_eq!(inner[2].value.bytes(), Some(bytes.as_slice()));
        }

        #[test]
        fn lengths_of_numbers_are_known(number in any::<u64>(), shift in 0_u32..64) {
            let number = number >> shift;
            let mut out = Vec::new();
            put_varint(&mut out, number);
            prop_assert_eq!(out.len(), varint_len(number));
        }

        #[test]
        fn a_stream_is_cut_where_messages_end(lengths in proptest::collection::vec(0_usize..40_000, 0..4)) {
            let mut out = Vec::new();
            for (at, length) in lengths.iter().enumerate() {
                put_delimited(&mut out, |out| out.extend(vec![u8::try_from(at).unwrap(); *length]));
            }
            let mut rest = out.as_slice();
            for (at, length) in lengths.iter().enumerate() {
                let (message, after) = delimited(rest).unwrap();
                prop_assert_eq!(message, vec![u8::try_from(at).unwrap(); *length]);
                rest = after;
            }
            prop_assert!(rest.is_empty());
        }
    }

    #[test]
    fn small_numbers_of_either_sign_are_short_in_zigzag() {
        for (value, byte) in [(0, 0), (-1, 1), (1, 2), (-2, 3), (63, 126), (-64, 127)] {
            let mut out = Vec::new();
            put_sint(&mut out, 1, value);
            assert_eq!(out, [8, byte]);
        }
    }
}
