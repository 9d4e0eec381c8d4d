//! JSON as Go writes it.

/// Writes a string with its quotes, escaped as Go's encoder does: `<`, `>` and `&` too.
pub fn put_string(out: &mut Vec<u8>, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    let mut plain = 0;
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let short = match byte {
            b'"' => Some(b'"'),
            b'\\' => Some(b'\\'),
            b'\n' => Some(b'n'),
            b'\r' => Some(b'r'),
            b'\t' => Some(b't'),
            0x08 => Some(b'b'),
            0x0c => Some(b'f'),
            _ => None,
        };
        // U+2028 and U+2029 end lines in JavaScript.
        let separator = byte == 0xe2
            && bytes.get(at + 1) == Some(&0x80)
            && matches!(bytes.get(at + 2), Some(0xa8 | 0xa9));
        let width = if separator { 3 } else { 1 };
        if short.is_some() || separator || byte < 0x20 || matches!(byte, b'<' | b'>' | b'&') {
            out.extend_from_slice(bytes.get(plain..at).unwrap_or_default());
            if let Some(short) = short {
                out.extend_from_slice(&[b'\\', short]);
            } else if separator {
                let last = if bytes.get(at + 2) == Some(&0xa8) {
                    b'8'
                } else {
                    b'9'
                };
                out.extend_from_slice(b"\\u202");
                out.push(last);
            } else {
                let digit = |nibble: u8| HEX.get(usize::from(nibble)).copied().unwrap_or(b'0');
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&[digit(byte >> 4), digit(byte & 0xf)]);
            }
            plain = at + width;
        }
        at += width;
    }
    out.extend_from_slice(bytes.get(plain..).unwrap_or_default());
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn escapes_are_those_of_go() {
        let mut out = Vec::new();
        put_string(&mut out, "a<b>&\"\\\n\u{1}\u{7f}\u{2028}é");
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "\"a\\u003cb\\u003e\\u0026\\\"\\\\\\n\\u0001\u{7f}\\u2028é\""
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

        #[test]
        fn strings_come_back(text in "[\\x00-\\x7fé\u{2020}-\u{2030}]{0,40}") {
            let mut out = Vec::new();
            put_string(&mut out, &text);
            prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
        }
    }
}
