//! JSON written directly as text, for objects that are written thousands of times a second.
//!
//! A tree of values costs several times as much as its text: a string for each name, a map for each
//! object, and all of it is dropped once it was printed. Members are written in the order of their
//! names, as a tree prints them, so that both ways give the same text.

use std::fmt::{Display, Write};

use kubevitals_model::Timestamp;

use crate::seed::Uid;

/// Writes the members of an open object.
#[derive(Debug)]
pub(crate) struct Members<'a>(&'a mut String);

/// Writes the items of an open list.
#[derive(Debug)]
pub(crate) struct Items<'a>(&'a mut String);

impl<'a> Members<'a> {
    /// Appends members, each followed by a comma. The caller that opened the object closes it with
    /// [`close`].
    pub(crate) fn new(out: &'a mut String) -> Self {
        Self(out)
    }

    #[inline]
    pub(crate) fn text(&mut self, name: &str, value: &str) -> &mut Self {
        self.name(name);
        push_string(self.0, value);
        self.end()
    }

    /// A string whose name may need escaping.
    pub(crate) fn entry(&mut self, name: &str, value: &str) -> &mut Self {
        push_string(self.0, name);
        self.0.push(':');
        push_string(self.0, value);
        self.end()
    }

    /// A string that needs no escaping.
    #[inline]
    pub(crate) fn display(&mut self, name: &str, value: impl Display) -> &mut Self {
        self.name(name);
        self.0.push('"');
        push_display(self.0, value);
        self.0.push('"');
        self.end()
    }

    /// A number.
    #[inline]
    pub(crate) fn bare(&mut self, name: &str, value: impl Display) -> &mut Self {
        self.name(name);
        push_display(self.0, value);
        self.end()
    }

    #[inline]
    pub(crate) fn flag(&mut self, name: &str, value: bool) -> &mut Self {
        self.json(name, if value { "true" } else { "false" })
    }

    #[inline]
    pub(crate) fn null(&mut self, name: &str) -> &mut Self {
        self.json(name, "null")
    }

    /// A time in the format of a status.
    #[inline]
    pub(crate) fn time(&mut self, name: &str, at: Timestamp) -> &mut Self {
        self.name(name);
        self.0.push('"');
        self.0.push_str(at.rfc3339_seconds().as_str());
        self.0.push('"');
        self.end()
    }

    /// `metav1.MicroTime`: six digits, whatever the resolution of the clock.
    pub(crate) fn micro_time(&mut self, name: &str, at: Timestamp) -> &mut Self {
        self.name(name);
        self.0.push('"');
        let millis = at.rfc3339_millis();
        self.0.push_str(millis.as_str().trim_end_matches('Z'));
        self.0.push_str("000Z\"");
        self.end()
    }

    #[inline]
    pub(crate) fn uid(&mut self, name: &str, uid: Uid) -> &mut Self {
        self.name(name);
        self.0.push('"');
        uid.push(self.0);
        self.0.push('"');
        self.end()
    }

    /// A value that is already JSON.
    #[inline]
    pub(crate) fn json(&mut self, name: &str, value: &str) -> &mut Self {
        self.name(name);
        self.0.push_str(value);
        self.end()
    }

    /// Members that are already JSON, each followed by a comma.
    pub(crate) fn ready(&mut self, members: &str) -> &mut Self {
        self.0.push_str(members);
        self
    }

    /// A string that `write` appends, and that needs no escaping.
    pub(crate) fn pushed(&mut self, name: &str, write: impl FnOnce(&mut String)) -> &mut Self {
        self.name(name);
        self.0.push('"');
        write(self.0);
        self.0.push('"');
        self.end()
    }

    #[inline]
    pub(crate) fn object(&mut self, name: &str, write: impl FnOnce(&mut Members<'_>)) -> &mut Self {
        self.name(name);
        push_object(self.0, write);
        self.end()
    }

    #[inline]
    pub(crate) fn list(&mut self, name: &str, write: impl FnOnce(&mut Items<'_>)) -> &mut Self {
        self.name(name);
        self.0.push('[');
        write(&mut Items(self.0));
        close(self.0, ']');
        self.end()
    }

    #[inline]
    fn name(&mut self, name: &str) {
        self.0.push('"');
        self.0.push_str(name);
        self.0.push_str("\":");
    }

    #[inline]
    fn end(&mut self) -> &mut Self {
        self.0.push(',');
        self
    }
}

impl Items<'_> {
    #[inline]
    pub(crate) fn object(&mut self, write: impl FnOnce(&mut Members<'_>)) {
        push_object(self.0, write);
        self.0.push(',');
    }
}

/// Closes an object or a list, and replaces the comma after its last element.
pub(crate) fn close(out: &mut String, with: char) {
    if out.ends_with(',') {
        out.pop();
    }
    out.push(with);
}

/// Appends the last hexadecimal digits of `value`, at most 16.
pub(crate) fn push_hex(out: &mut String, value: u64, digits: usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [b'0'; 16];
    let mut rest = value;
    for digit in text.iter_mut().take(digits).rev() {
        *digit = DIGITS
            .get(usize::try_from(rest & 0xF).unwrap_or(0))
            .copied()
            .unwrap_or(b'0');
        rest >>= 4;
    }
    let text = text.get(..digits).unwrap_or(&text);
    out.push_str(std::str::from_utf8(text).expect("hexadecimal digits are text"));
}

/// Appends a quoted string, escaped as `serde_json` escapes it.
pub(crate) fn push_string(out: &mut String, text: &str) {
    out.push('"');
    let is_special = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
    // No early exit, so that the compiler can vectorize the scan.
    let is_escaped = text
        .bytes()
        .fold(false, |found, byte| found | is_special(byte));
    if is_escaped {
        text.chars().for_each(|letter| push_escaped(out, letter));
    } else {
        out.push_str(text);
    }
    out.push('"');
}

fn push_escaped(out: &mut String, letter: char) {
    match letter {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        control if control < ' ' => {
            out.push_str("\\u");
            push_hex(out, u64::from(control), 4);
        }
        plain => out.push(plain),
    }
}

pub(crate) fn push_display(out: &mut String, value: impl Display) {
    write!(out, "{value}").expect("a String takes any text");
}

fn push_object(out: &mut String, write: impl FnOnce(&mut Members<'_>)) {
    out.push('{');
    write(&mut Members(out));
    close(out, '}');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn strings_are_escaped_as_serde_json_does(text in "(\\PC|[\\x00-\\x7f])*") {
            let mut out = String::new();
            push_string(&mut out, &text);
            prop_assert_eq!(out, serde_json::to_string(&text).unwrap());
        }

        #[test]
        fn hexadecimal_digits_are_those_of_the_standard_library(value: u64) {
            let mut out = String::new();
            push_hex(&mut out, value, 16);
            push_hex(&mut out, value, 4);
            prop_assert_eq!(out, format!("{value:016x}{:04x}", value & 0xFFFF));
        }
    }

    #[test]
    fn parts_are_separated_and_closed() {
        let mut out = String::from("{");
        Members::new(&mut out)
            .list("empty", |_| {})
            .list("list", |items| {
                items.object(|_| {});
                items.object(|members| {
                    members.entry("\"", "a,");
                });
            })
            .object("object", |members| {
                members.bare("n", 7).null("null").flag("yes", true);
            })
            .display("one", 1)
            .micro_time("time", Timestamp::from_unix_millis(5));
        close(&mut out, '}');
        assert_eq!(
            out,
            r#"{"empty":[],"list":[{},{"\"":"a,"}],"object":{"n":7,"null":null,"yes":true},"one":"1","time":"1970-01-01T00:00:00.005000Z"}"#
        );
    }
}
