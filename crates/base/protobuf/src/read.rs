//! Takes messages apart, by the rules of protobuf and independent of what writes them.

/// A field of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'m> {
    /// Its number in the schema.
    pub number: u32,
    /// What it holds.
    pub value: Value<'m>,
}

/// What a field holds, as far as that can be told without its schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'m> {
    /// A number in groups of seven bits.
    Varint(u64),
    /// Eight bytes.
    Fixed64(u64),
    /// Four bytes.
    Fixed32(u32),
    /// Bytes, text or a message.
    Bytes(&'m [u8]),
}

/// The fields of a message in their order; none if it is not one.
pub fn fields(mut message: &[u8]) -> Option<Vec<Field<'_>>> {
    let mut all = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        let number = u32::try_from(tag >> 3).ok().filter(|number| *number > 0)?;
        let value = match tag & 7 {
            0 => Value::Varint(varint(&mut message)?),
            1 => Value::Fixed64(u64::from_le_bytes(array(&mut message)?)),
            2 => {
                let (value, rest) = delimited(message)?;
                message = rest;
                Value::Bytes(value)
            }
            5 => Value::Fixed32(u32::from_le_bytes(array(&mut message)?)),
            _ => return None,
        };
        all.push(Field { number, value });
    }
    Some(all)
}

/// The first message of a stream of them, each after its length, and the rest of the stream.
pub fn delimited(mut stream: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = usize::try_from(varint(&mut stream)?).ok()?;
    stream.split_at_checked(length)
}

impl<'m> Value<'m> {
    /// As an unsigned number.
    pub fn uint(self) -> Option<u64> {
        match self {
            Self::Varint(value) => Some(value),
            _ => None,
        }
    }

    /// As a signed number in two's complement.
    pub fn int(self) -> Option<i64> {
        self.uint().map(u64::cast_signed)
    }

    /// As a signed number in zigzag.
    pub fn sint(self) -> Option<i64> {
        self.uint()
            .map(|value| (value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// As a floating-point number.
    pub fn double(self) -> Option<f64> {
        match self {
            Self::Fixed64(bits) => Some(f64::from_bits(bits)),
            _ => None,
        }
    }

    /// As bytes.
    pub fn bytes(self) -> Option<&'m [u8]> {
        match self {
            Self::Bytes(value) => Some(value),
            _ => None,
        }
    }

    /// As text.
    pub fn text(self) -> Option<&'m str> {
        str::from_utf8(self.bytes()?).ok()
    }
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let group = u64::from(byte & 0x7f);
        // The last of ten groups has one bit to give.
        if shift == 63 && group > 1 {
            return None;
        }
        value |= group << shift;
        if *byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn array<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (array, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*array)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_message_is_none() {
        for broken in [
            &[0x80][..],
            &[0],
            &[8],
            &[0x0a, 2, 1],
            &[0x09, 1, 2],
            &[0x0d, 1],
            &[0x0b],
            &[8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2],
            &[8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1],
        ] {
            assert_eq!(fields(broken), None, "{broken:?}");
        }
        assert_eq!(fields(&[]), Some(Vec::new()));
        let fixed = Field {
            number: 1,
            value: Value::Fixed32(1),
        };
        assert_eq!(fields(&[0x0d, 1, 0, 0, 0]), Some(vec![fixed]));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn nothing_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = (fields(&bytes), delimited(&bytes));
        }
    }
}
