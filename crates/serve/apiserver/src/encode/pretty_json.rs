//! Streaming indentation of JSON, as Go does it: two spaces, `{}` and `[]` for empty values.

use bytes::{BufMut as _, Bytes, BytesMut};

/// The state of a stream of JSON.
#[derive(Debug, Default)]
pub(crate) struct Indenter {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// After an opening bracket, before the next byte.
    opened: bool,
}

impl Indenter {
    /// Indents the next piece.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Bytes {
        let mut out = BytesMut::with_capacity(piece.len() + piece.len() / 2);
        for &byte in piece {
            if self.in_string {
                out.put_u8(byte);
                if self.escaped {
                    self.escaped = false;
                } else if byte == b'\\' {
                    self.escaped = true;
                } else if byte == b'"' {
                    self.in_string = false;
                }
                continue;
            }
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => continue,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if !std::mem::take(&mut self.opened) {
                        self.line(&mut out);
                    }
                    out.put_u8(byte);
                    continue;
                }
                _ => {}
            }
            if std::mem::take(&mut self.opened) {
                self.line(&mut out);
            }
            out.put_u8(byte);
            match byte {
                b'{' | b'[' => {
                    self.depth += 1;
                    self.opened = true;
                }
                b',' => self.line(&mut out),
                b':' => out.put_u8(b' '),
                b'"' => self.in_string = true,
                _ => {}
            }
        }
        out.freeze()
    }

    fn line(&self, out: &mut BytesMut) {
        out.put_u8(b'\n');
        out.put_bytes(b' ', 2 * self.depth);
    }
}

/// Indents a complete document.
pub(crate) fn whole(json: &[u8]) -> Bytes {
    Indenter::default().push(json)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[test]
    fn empty_values_stay_on_one_line() {
        let json = br#"{"a":{},"b":[],"c":["x{,:\"y",1],"d":{"e":null}}"#;
        let expected = "{\n  \"a\": {},\n  \"b\": [],\n  \"c\": [\n    \"x{,:\\\"y\",\n    1\n  ],\n  \"d\": {\n    \"e\": null\n  }\n}";
        assert_eq!(whole(json), expected);
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a-z\"\\\\{},:\n é]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map("[a-z\"]{0,4}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

        #[test]
        fn indented_is_what_serde_indents(value in values(), cut in any::<prop::sample::Index>()) {
            let json = serde_json::to_vec(&value).unwrap();
            let (left, right) = json.split_at(cut.index(json.len()));
            let mut indenter = Indenter::default();
            let mut out = indenter.push(left).to_vec();
            out.extend_from_slice(&indenter.push(right));
            prop_assert_eq!(String::from_utf8(out).unwrap(), serde_json::to_string_pretty(&value).unwrap());
        }
    }
}
