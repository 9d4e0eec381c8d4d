//! Decoding of messages, independent of the encoder.

/// A field of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'m> {
    pub number: u32,
    pub value: Value<'m>,
}

/// The value of a field, as far as it is known without the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'m> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    /// Bytes, a string or a message.
    Bytes(&'m [u8]),
}

/// Returns the fields of a message in order, or `None` if it is malformed.
pub fn fields(mut message: &[u8]) -> Option<Vec<Field<'_>>> {
    let mut all = Vec::new();
    while !message.is_empty() {
        all.push(read_field(&mut message)?);
    }
    Some(all)
}

/// Reads the first field of a message and advances past it; `None` if it is malformed.
#[inline]
pub fn read_field<'m>(message: &mut &'m [u8]) -> Option<Field<'m>> {
    let tag = read_varint(message)?;
    let number = u32::try_from(tag >> 3).ok().filter(|number| *number > 0)?;
    let value = match tag & 7 {
        0 => Value::Varint(read_varint(message)?),
        1 => Value::Fixed64(u64::from_le_bytes(array(message)?)),
        2 => {
            let (value, rest) = delimited(message)?;
            *message = rest;
            Value::Bytes(value)
        }
        5 => Value::Fixed32(u32::from_le_bytes(array(message)?)),
        _ => return None,
    };
    Some(Field { number, value })
}

/// Returns the first length-delimited message and the rest.
#[inline]
pub fn delimited(mut stream: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = usize::try_from(read_varint(&mut stream)?).ok()?;
    stream.split_at_checked(length)
}

impl<'m> Value<'m> {
    /// Returns an unsigned number.
    #[inline]
    pub fn uint(self) -> Option<u64> {
        match self {
            Self::Varint(value) => Some(value),
            _ => None,
        }
    }

    /// Returns a signed number in two's complement.
    #[inline]
    pub fn int(self) -> Option<i64> {
        self.uint().map(u64::cast_signed)
    }

    /// Returns a signed number in zigzag.
    #[inline]
    pub fn sint(self) -> Option<i64> {
        self.uint()
            .map(|value| (value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// Returns a `double`.
    #[inline]
    pub fn double(self) -> Option<f64> {
        match self {
            Self::Fixed64(bits) => Some(f64::from_bits(bits)),
            _ => None,
        }
    }

    /// Returns bytes.
    #[inline]
    pub fn bytes(self) -> Option<&'m [u8]> {
        match self {
            Self::Bytes(value) => Some(value),
            _ => None,
        }
    }

    /// Returns a string.
    #[inline]
    pub fn text(self) -> Option<&'m str> {
        str::from_utf8(self.bytes()?).ok()
    }
}

/// Reads a varint and advances past it.
#[inline]
pub fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let group = u64::from(byte & 0x7f);
        // The tenth byte carries one bit.
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

#[inline]
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
    fn malformed_messages_are_rejected() {
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
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = (fields(&bytes), delimited(&bytes));
        }
    }
}
