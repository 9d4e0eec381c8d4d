//! Fields of protobuf messages.

/// How a field is written.
#[derive(Clone, Copy)]
enum Kind {
    Varint = 0,
    Bytes = 2,
}

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

/// Writes a signed number as Go's `int32` and `int64`: in two's complement, not in zigzag.
pub fn put_int(out: &mut Vec<u8>, field: u32, value: i64) {
    put_uint(out, field, value.cast_unsigned());
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
    let start = out.len();
    fill(out);
    let length = out.len() - start;
    let mut head = Vec::with_capacity(2 * 10);
    put_tag(&mut head, field, Kind::Bytes);
    put_varint(&mut head, length as u64);
    // The length stands before what it measures, and takes as many bytes as it likes.
    out.splice(start..start, head);
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
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A field as a decoder sees it.
    #[derive(Debug, PartialEq, Eq)]
    pub(crate) enum Field {
        Number(u32, u64),
        Bytes(u32, Vec<u8>),
    }

    /// Takes a message apart, by the rules of protobuf and independent of the writers above.
    pub(crate) fn fields(mut bytes: &[u8]) -> Vec<Field> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes);
            let field = u32::try_from(tag >> 3).unwrap();
            fields.push(match tag & 7 {
                0 => Field::Number(field, varint(&mut bytes)),
                2 => {
                    let length = usize::try_from(varint(&mut bytes)).unwrap();
                    let (value, rest) = bytes.split_at(length);
                    bytes = rest;
                    Field::Bytes(field, value.to_vec())
                }
                other => panic!("wire type {other}"),
            });
        }
        fields
    }

    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0_u64;
        for at in 0.. {
            let byte = bytes[at];
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte < 0x80 {
                *bytes = &bytes[at + 1..];
                break;
            }
        }
        value
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        #[test]
        fn what_is_written_can_be_read(
            field in 1_u32..1 << 20,
            number in any::<u64>(),
            signed in any::<i64>(),
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            text in ".{0,40}",
        ) {
            let mut out = Vec::new();
            put_uint(&mut out, field, number);
            put_int(&mut out, field, signed);
            put_bytes(&mut out, field, &bytes);
            put_message(&mut out, field, |out| {
                put_str(out, 1, &text);
                put_entry(out, 2, &text, "v");
            });
            let read = fields(&out);
            prop_assert_eq!(&read[0], &Field::Number(field, number));
            prop_assert_eq!(&read[1], &Field::Number(field, signed.cast_unsigned()));
            prop_assert_eq!(&read[2], &Field::Bytes(field, bytes));
            let Field::Bytes(_, inner) = &read[3] else { panic!("{:?}", read[3]) };
            let inner = fields(inner);
            prop_assert_eq!(&inner[0], &Field::Bytes(1, text.clone().into_bytes()));
            let Field::Bytes(2, entry) = &inner[1] else { panic!("{:?}", inner[1]) };
            prop_assert_eq!(fields(entry), vec![
                Field::Bytes(1, text.into_bytes()), Field::Bytes(2, b"v".to_vec()),
            ]);
        }

        #[test]
        fn lengths_of_numbers_are_known(number in any::<u64>(), shift in 0_u32..64) {
            let number = number >> shift;
            let mut out = Vec::new();
            put_varint(&mut out, number);
            prop_assert_eq!(out.len(), varint_len(number));
        }
    }
}
