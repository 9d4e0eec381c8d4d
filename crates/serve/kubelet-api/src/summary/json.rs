//! JSON as Go's `json.MarshalIndent(value, "", " ")` writes it.

use std::io::Write as _;

use kubevitals_apiserver::wire::json::put_string;

/// Writes one object and its members.
pub(super) struct Json<'a> {
    out: &'a mut Vec<u8>,
    depth: usize,
    /// Whether the current object or array has nothing yet.
    is_empty: bool,
}

impl<'a> Json<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        Self {
            out,
            depth: 0,
            is_empty: true,
        }
    }

    /// Writes the outermost object.
    pub(super) fn root(&mut self, write: impl FnOnce(&mut Self)) {
        self.nested(b'{', b'}', write);
    }

    pub(super) fn object(&mut self, name: &'static str, write: impl FnOnce(&mut Self)) {
        self.name(name);
        self.nested(b'{', b'}', write);
    }

    /// Writes an array of objects.
    pub(super) fn array<T>(
        &mut self,
        name: &'static str,
        items: &[T],
        mut write: impl FnMut(&mut Self, &T),
    ) {
        self.name(name);
        self.nested(b'[', b']', |json| {
            for item in items {
                json.line();
                json.nested(b'{', b'}', |json| write(json, item));
            }
        });
    }

    pub(super) fn text(&mut self, name: &'static str, value: &str) {
        self.name(name);
        put_string(self.out, value);
    }

    pub(super) fn number(&mut self, name: &'static str, value: u64) {
        self.name(name);
        let mut buffer = itoa::Buffer::new();
        self.out.extend_from_slice(buffer.format(value).as_bytes());
    }

    /// Writes a percentage, or anything else between 1e-6 and 1e21, as Go does. JSON has no number
    /// for what is not finite.
    pub(super) fn float(&mut self, name: &'static str, value: f64) {
        self.name(name);
        let value = if value.is_finite() { value } else { 0.0 };
        // Writing to a vector does not fail.
        let _written = write!(self.out, "{value}");
    }

    pub(super) fn null(&mut self, name: &'static str) {
        self.name(name);
        self.out.extend_from_slice(b"null");
    }

    fn name(&mut self, name: &'static str) {
        self.line();
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\": ");
    }

    fn nested(&mut self, open: u8, close: u8, write: impl FnOnce(&mut Self)) {
        self.out.push(open);
        self.depth += 1;
        self.is_empty = true;
        write(self);
        self.depth -= 1;
        if !self.is_empty {
            self.indent();
        }
        self.is_empty = false;
        self.out.push(close);
    }

    fn line(&mut self) {
        if !self.is_empty {
            self.out.push(b',');
        }
        self.is_empty = false;
        self.indent();
    }

    fn indent(&mut self) {
        self.out.push(b'\n');
        self.out.resize(self.out.len() + self.depth, b' ');
    }
}
