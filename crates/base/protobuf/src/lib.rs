//! Encoding and decoding of protobuf fields, for messages that are encoded by hand.
//!
//! There is no schema: the caller passes field numbers and chooses their order. Generated code
//! would need a schema compiler at build time for a handful of messages.

mod read;

pub use read::{Field, Value, delimited, fields, read_field, read_varint};

/// The wire type of a field.
#[derive(Clone, Copy)]
enum WireType {
    Varint = 0,
    Fixed64 = 1,
    Bytes = 2,
}

/// Maximum length of a varint.
const MAX_VARINT: usize = 10;

/// Appends a varint.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(low_bits(value) | 0x80);
        value >>= 7;
    }
    out.push(low_bits(value));
}

/// Returns the length of a varint.
#[inline]
pub const fn varint_len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Appends an unsigned number, or a boolean.
#[inline]
pub fn put_uint(out: &mut Vec<u8>, field: u32, value: u64) {
    put_tag(out, field, WireType::Varint);
    put_varint(out, value);
}

/// Appends an `int32` or `int64`, in two's complement.
#[inline]
pub fn put_int(out: &mut Vec<u8>, field: u32, value: i64) {
    put_uint(out, field, value.cast_unsigned());
}

/// Appends an `sint32` or `sint64`, in zigzag.
#[inline]
pub fn put_sint(out: &mut Vec<u8>, field: u32, value: i64) {
    put_uint(out, field, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

/// Appends a `double`.
#[inline]
pub fn put_double(out: &mut Vec<u8>, field: u32, value: f64) {
    put_fixed64(out, field, value.to_bits());
}

/// Appends a `fixed64`.
#[inline]
pub fn put_fixed64(out: &mut Vec<u8>, field: u32, value: u64) {
    put_tag(out, field, WireType::Fixed64);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends bytes.
#[inline]
pub fn put_bytes(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    put_tag(out, field, WireType::Bytes);
    put_varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// Appends a string.
#[inline]
pub fn put_str(out: &mut Vec<u8>, field: u32, value: &str) {
    put_bytes(out, field, value.as_bytes());
}

/// Appends a message whose fields `fill` appends.
#[inline]
pub fn put_message(out: &mut Vec<u8>, field: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    put_tag(out, field, WireType::Bytes);
    put_delimited(out, fill);
}

/// Appends a message that `fill` appends, preceded by its length.
#[inline]
pub fn put_delimited(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    // The length of most messages takes one byte. Longer ones are moved once.
    let at = out.len();
    out.push(0);
    fill(out);
    let length = out.len() - at - 1;
    if let (Ok(short @ ..0x80), Some(first)) = (u8::try_from(length), out.get_mut(at)) {
        *first = short;
    } else {
        let mut bytes = Vec::with_capacity(MAX_VARINT);
        put_varint(&mut bytes, length as u64);
        out.splice(at..=at, bytes);
    }
}

/// Appends an entry of a `map<string, string>`.
#[inline]
pub fn put_entry(out: &mut Vec<u8>, field: u32, key: &str, value: &str) {
    put_message(out, field, |out| {
        put_str(out, 1, key);
        put_str(out, 2, value);
    });
}

#[inline]
fn put_tag(out: &mut Vec<u8>, field: u32, wire_type: WireType) {
    put_varint(out, u64::from(field) << 3 | wire_type as u64);
}

#[inline]
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
        fn fields_can_be_read_back(
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
        fn varint_len_is_exact(number in any::<u64>(), shift in 0_u32..64) {
            let number = number >> shift;
            let mut out = Vec::new();
            put_varint(&mut out, number);
            prop_assert_eq!(out.len(), varint_len(number));
        }

        #[test]
        fn delimited_messages_can_be_split(lengths in proptest::collection::vec(0_usize..40_000, 0..4)) {
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
    fn zigzag_is_short_for_small_numbers() {
        for (value, byte) in [(0, 0), (-1, 1), (1, 2), (-2, 3), (63, 126), (-64, 127)] {
            let mut out = Vec::new();
            put_sint(&mut out, 1, value);
            assert_eq!(out, [8, byte]);
        }
    }
}
