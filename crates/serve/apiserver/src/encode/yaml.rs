//! YAML from JSON, in the style of `sigs.k8s.io/yaml`, which kubectl users know: block style,
//! sorted keys, lists not indented below their key, and Go's choice of quotes.
//!
//! The serializer of serde-saphyr quotes differently (dates, strings that read as numbers, single
//! and double quotes), and would need a quoting decision for each string, which is most of this
//! code.

use std::fmt::Write as _;

use serde_json::Value;

/// Words that YAML 1.1 reads as something other than a string.
const RESERVED: &[&str] = &[
    "", "~", "null", "true", "false", "yes", "no", "on", "off", "y", "n", "=", "<<", ".inf",
    "-.inf", "+.inf", ".nan",
];

/// Converts JSON to YAML.
pub fn from_json(json: &[u8]) -> Result<String, serde_json::Error> {
    let value: Value = serde_json::from_slice(json)?;
    let mut out = String::with_capacity(json.len());
    match &value {
        Value::Object(map) if !map.is_empty() => block(&mut out, &value, 0),
        Value::Array(list) if !list.is_empty() => block(&mut out, &value, 0),
        scalar => {
            put_scalar(&mut out, scalar, 0);
            out.push('\n');
        }
    }
    Ok(out)
}

/// Writes the lines of a map or list whose first line is indented already.
fn block(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(map) => {
            for (index, (key, value)) in map.iter().enumerate() {
                if index > 0 {
                    indent(out, depth);
                }
                put_text(out, key, depth);
                out.push(':');
                put_member(out, value, depth);
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                if index > 0 {
                    indent(out, depth);
                }
                out.push_str("- ");
                if is_block(value) {
                    block(out, value, depth + 2);
                } else {
                    put_scalar(out, value, depth + 2);
                    out.push('\n');
                }
            }
        }
        scalar => put_scalar(out, scalar, depth),
    }
}

fn put_member(out: &mut String, value: &Value, depth: usize) {
    if !is_block(value) {
        out.push(' ');
        put_scalar(out, value, depth + 2);
        out.push('\n');
        return;
    }
    out.push('\n');
    // Lists are not indented below their key.
    let inner = if value.is_array() { depth } else { depth + 2 };
    indent(out, inner);
    block(out, value, inner);
}

fn is_block(value: &Value) -> bool {
    match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => false,
    }
}

fn indent(out: &mut String, depth: usize) {
    for _ in 0..depth {
        out.push(' ');
    }
}

fn put_scalar(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::String(text) => put_text(out, text, depth),
        Value::Object(_) => out.push_str("{}"),
        Value::Array(_) => out.push_str("[]"),
        other => {
            let _infallible = write!(out, "{other}");
        }
    }
}

/// Writes a string without quotes if it can only be read as itself.
fn put_text(out: &mut String, text: &str, depth: usize) {
    let printable = |c: char| {
        c == '\t'
            || !c.is_control() && !matches!(c, '\u{feff}' | '\u{2028}' | '\u{2029}' | '\u{85}')
    };
    if is_plain(text) {
        out.push_str(text);
    } else if text.contains('\n')
        && text.chars().all(|c| c == '\n' || printable(c))
        && !text.starts_with([' ', '\n', '\t'])
    {
        put_literal(out, text, depth);
    } else if text.chars().all(|c| printable(c) && c != '\t') && !looks_special(text) {
        out.push('\'');
        out.push_str(&text.replace('\'', "''"));
        out.push('\'');
    } else {
        // JSON's strings are YAML's double-quoted ones.
        let quoted = serde_json::to_string(text).unwrap_or_default();
        out.push_str(&quoted);
    }
}

fn put_literal(out: &mut String, text: &str, depth: usize) {
    let body = text.trim_end_matches('\n');
    let ends = text.len() - body.len();
    out.push_str(match ends {
        0 => "|-",
        1 => "|",
        _ => "|+",
    });
    for line in body.split('\n') {
        out.push('\n');
        if !line.is_empty() {
            indent(out, depth);
            out.push_str(line);
        }
    }
    for _ in 1..ends {
        out.push('\n');
    }
}

/// Whether Go's writer uses double quotes although single ones would do: strings that read as
/// another type.
fn looks_special(text: &str) -> bool {
    is_reserved(text) || looks_like_number(text)
}

fn is_reserved(text: &str) -> bool {
    RESERVED.iter().any(|word| word.eq_ignore_ascii_case(text))
}

fn is_plain(text: &str) -> bool {
    let Some(first) = text.chars().next() else {
        return false;
    };
    if looks_special(text) || looks_like_date(text) {
        return false;
    }
    let indicator = "!&*{}[]|>@`\"'%#,?:-=~ ";
    let starts_plain = !indicator.contains(first)
        || (matches!(first, '-' | '?' | ':')
            && text
                .chars()
                .nth(1)
                .is_some_and(|second| !second.is_whitespace())
            && !text.starts_with("---"));
    starts_plain
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && text
            .chars()
            .all(|c| !c.is_control() && !matches!(c, '\u{feff}' | '\u{2028}' | '\u{2029}'))
}

/// Whether some parser may read a number: digits with signs, points, exponents, bases,
/// sexagesimals.
fn looks_like_number(text: &str) -> bool {
    let body = text.strip_prefix(['-', '+']).unwrap_or(text);
    let digits = body.strip_prefix('.').unwrap_or(body);
    digits.starts_with(|c: char| c.is_ascii_digit())
        && body.chars().all(|c| {
            c.is_ascii_hexdigit()
                || matches!(c, '.' | '_' | ':' | '+' | '-' | 'x' | 'X' | 'o' | 'O')
        })
        && (body.parse::<f64>().is_ok()
            || body.contains([':', '_'])
            || ["0x", "0X", "0o", "0O", "0b", "0B"]
                .iter()
                .any(|base| body.starts_with(base)))
}

/// `2026-11-16`, with or without a time.
fn looks_like_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 8
        && bytes.iter().take(4).all(u8::is_ascii_digit)
        && bytes.get(4) == Some(&b'-')
        && bytes.get(5).is_some_and(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn yaml(value: &Value) -> String {
        from_json(&serde_json::to_vec(value).unwrap()).unwrap()
    }

    #[test]
    fn lists_and_maps_are_in_block_style() {
        let value = json!({"kind": "L", "items": [{"b": [], "a": {"x": 1}}, "s", [1, 2]], "e": {}, "m": "a: b"});
        assert_eq!(
            yaml(&value),
            "e: {}\nitems:\n- a:\n    x: 1\n  b: []\n- s\n- - 1\n  - 2\nkind: L\nm: 'a: b'\n"
        );
    }

    #[test]
    fn ambiguous_strings_are_quoted() {
        let cases = [
            ("", "\"\""),
            ("true", "\"true\""),
            ("No", "\"No\""),
            ("12", "\"12\""),
            ("1e3", "\"1e3\""),
            ("0x1f", "\"0x1f\""),
            ("1:20", "\"1:20\""),
            ("12345n", "12345n"),
            ("10.0.0.1", "10.0.0.1"),
            ("25.422s", "25.422s"),
            ("1005556Ki", "1005556Ki"),
            ("2026-11-16T00:52:11Z", "'2026-11-16T00:52:11Z'"),
            ("-", "'-'"),
            ("- a", "'- a'"),
            ("a: b", "'a: b'"),
            ("it's: so", "'it''s: so'"),
            ("a #b", "'a #b'"),
            ("k8s.io/x", "k8s.io/x"),
            ("system:anonymous", "system:anonymous"),
            ("a\tb", "\"a\\tb\""),
        ];
        for (text, expected) in cases {
            assert_eq!(yaml(&json!(text)).trim_end(), expected, "{text}");
        }
        assert_eq!(yaml(&json!({"a": "x\ny\n"})), "a: |\n  x\n  y\n");
        assert_eq!(yaml(&json!({"a": "x\n\ny"})), "a: |-\n  x\n\n  y\n");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

        #[test]
        fn strings_survive_a_round_trip(text in "[a-zA-Z0-9:#'\" \n\t\\-_.~+=!&*{}\\[\\]|>@`%,?é]{0,12}", key in "[a-z0-9.:/ -]{1,6}") {
            let value = json!({key: [text.clone(), {"nested": text}]});
            let written = yaml(&value);
            let read: Value = serde_saphyr::from_str(&written).unwrap();
            prop_assert_eq!(read, value, "{}", written);
        }
    }
}
