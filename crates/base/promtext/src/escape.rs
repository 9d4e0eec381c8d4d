//! Escaping of backslashes, double quotes and newlines.

use std::borrow::Cow;

use memchr::{memchr, memchr2};

use crate::swar;

/// Appends a label value with `\`, `"` and newline escaped; the quotes around it are not written.
#[inline]
pub fn write_escaped_label_value(out: &mut Vec<u8>, value: &str) {
    let bytes = value.as_bytes();
    if needs_escapes(bytes) {
        write_escaping(out, bytes, true);
    } else {
        out.extend_from_slice(bytes);
    }
}

/// Appends a `HELP` text with `\` and newline escaped. A double quote is left as it is.
pub fn write_escaped_help(out: &mut Vec<u8>, text: &str) {
    if memchr2(b'\\', b'\n', text.as_bytes()).is_some() {
        write_escaping(out, text.as_bytes(), false);
    } else {
        out.extend_from_slice(text.as_bytes());
    }
}

/// Resolves `\\`, `\"` and `\n`; borrows if there are none.
///
/// A backslash before another character is kept. The parser rejects such values, so this concerns
/// only text from elsewhere.
pub fn unescape(raw: &str) -> Cow<'_, str> {
    let Some(first) = memchr(b'\\', raw.as_bytes()) else {
        return Cow::Borrowed(raw);
    };
    let (clean, rest) = raw.split_at(first);
    let mut text = String::with_capacity(raw.len());
    text.push_str(clean);
    let mut chars = rest.chars().peekable();
    while let Some(char) = chars.next() {
        let replacement = match (char, chars.peek()) {
            ('\\', Some('\\')) => Some('\\'),
            ('\\', Some('"')) => Some('"'),
            ('\\', Some('n')) => Some('\n'),
            _ => None,
        };
        if replacement.is_some() {
            chars.next();
        }
        text.push(replacement.unwrap_or(char));
    }
    Cow::Owned(text)
}

/// Returns whether a label value contains a byte that must be escaped.
#[inline]
fn needs_escapes(bytes: &[u8]) -> bool {
    let (chunks, tail) = bytes.as_chunks::<8>();
    let mut marks = 0;
    for chunk in chunks {
        let chunk = u64::from_le_bytes(*chunk);
        marks |= swar::mark(chunk, b'\\') | swar::mark(chunk, b'"') | swar::mark(chunk, b'\n');
    }
    marks != 0 || tail.iter().any(|byte| matches!(byte, b'\\' | b'"' | b'\n'))
}

#[cold]
fn write_escaping(out: &mut Vec<u8>, bytes: &[u8], quotes: bool) {
    for byte in bytes {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'"' if quotes => out.extend_from_slice(b"\\\""),
            byte => out.push(*byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(value: &str) -> String {
        let mut out = Vec::new();
        write_escaped_label_value(&mut out, value);
        String::from_utf8(out).unwrap()
    }

    fn help(text: &str) -> String {
        let mut out = Vec::new();
        write_escaped_help(&mut out, text);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn label_values_escape_three_bytes_at_every_position() {
        assert_eq!(label(""), "");
        assert_eq!(
            label("plain value, with blanks"),
            "plain value, with blanks"
        );
        for (byte, escaped) in [("\\", "\\\\"), ("\"", "\\\""), ("\n", "\\n")] {
            for before in 0..20 {
                for after in 0..10 {
                    let (before, after) = ("ü".repeat(before), "x".repeat(after));
                    let value = format!("{before}{byte}{after}");
                    assert_eq!(label(&value), format!("{before}{escaped}{after}"));
                    assert_eq!(unescape(&label(&value)), value);
                }
            }
        }
    }

    #[test]
    fn help_does_not_escape_quotes() {
        assert_eq!(help("say \"x\""), "say \"x\"");
        assert_eq!(help("a\\b\nc\"d\""), "a\\\\b\\nc\"d\"");
    }

    #[test]
    fn unescape_borrows_plain_text_and_keeps_unknown_escapes() {
        assert!(matches!(unescape("plain"), Cow::Borrowed("plain")));
        assert_eq!(unescape(r"\\n"), r"\n");
        assert_eq!(unescape(r#"\\\"\n"#), "\\\"\n");
        assert_eq!(unescape(r"\x\"), r"\x\");
    }
}
