//! Trees as YAML: in blocks, with quotes where a text could be read as something else.

use std::fmt::Write;

use crate::config::tree::{Node, Value};

/// Writes a document. What [`parse`](crate::config::tree::parse) reads from it is equal, but for
/// lines.
pub(crate) fn write(node: &Node) -> String {
    let mut out = String::new();
    if is_block(&node.value) {
        block(&mut out, node, 0);
    } else {
        scalar(&mut out, &node.value);
        out.push('\n');
    }
    out
}

/// Writes the lines of a list or mapping whose first line is indented already.
fn block(out: &mut String, node: &Node, depth: usize) {
    match &node.value {
        Value::Map(entries) => {
            for (index, (key, value)) in entries.iter().enumerate() {
                if index > 0 {
                    indent(out, depth);
                }
                // A longer key must be marked.
                if key.len() > 500 {
                    out.push_str("? ");
                    text(out, key);
                    out.push('\n');
                    indent(out, depth);
                } else {
                    text(out, key);
                }
                out.push(':');
                if is_block(&value.value) {
                    out.push('\n');
                    indent(out, depth + 2);
                    block(out, value, depth + 2);
                } else {
                    out.push(' ');
                    scalar(out, &value.value);
                    out.push('\n');
                }
            }
        }
        Value::List(items) => {
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    indent(out, depth);
                }
                out.push_str("- ");
                if is_block(&item.value) {
                    block(out, item, depth + 2);
                } else {
                    scalar(out, &item.value);
                    out.push('\n');
                }
            }
        }
        other => scalar(out, other),
    }
}

fn is_block(value: &Value) -> bool {
    match value {
        Value::Map(entries) => !entries.is_empty(),
        Value::List(items) => !items.is_empty(),
        _ => false,
    }
}

fn indent(out: &mut String, depth: usize) {
    out.extend(std::iter::repeat_n(' ', depth));
}

fn scalar(out: &mut String, value: &Value) {
    let _infallible = match value {
        Value::Null => write!(out, "null"),
        Value::Bool(value) => write!(out, "{value}"),
        Value::Integer(value) => write!(out, "{value}"),
        Value::Float(value) if value.is_nan() => write!(out, ".nan"),
        Value::Float(value) if value.is_infinite() => {
            write!(out, "{}.inf", if *value < 0.0 { "-" } else { "" })
        }
        Value::Float(value) => write!(out, "{value:?}"),
        Value::List(_) => write!(out, "[]"),
        Value::Map(_) => write!(out, "{{}}"),
        Value::Text(value) => {
            text(out, value);
            Ok(())
        }
    };
}

/// Writes a text, in double quotes unless it can only be read as itself.
fn text(out: &mut String, value: &str) {
    if is_plain(value) {
        out.push_str(value);
        return;
    }
    out.push('"');
    for c in value.chars() {
        let _infallible = match c {
            '"' => write!(out, "\\\""),
            '\\' => write!(out, "\\\\"),
            '\n' => write!(out, "\\n"),
            '\t' => write!(out, "\\t"),
            '\r' => write!(out, "\\r"),
            c if c.is_control()
                || matches!(u32::from(c), 0x2028 | 0x2029 | 0xfeff | 0xfffe..=0xffff) =>
            {
                write!(out, "\\u{:04x}", u32::from(c))
            }
            c => write!(out, "{c}"),
        };
    }
    out.push('"');
}

/// Whether a text is a word that no version of YAML reads as anything else: it starts with a
/// letter and is none of the words for booleans and null.
fn is_plain(value: &str) -> bool {
    const WORDS: [&str; 11] = [
        "true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf",
    ];
    if is_duration(value) {
        return true;
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte);
    value.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && value.len() < 100
        && value.bytes().all(allowed)
        && !WORDS.iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// Whether a text is a plain duration such as `5s`, which people write without quotes.
fn is_duration(value: &str) -> bool {
    let units = ["ms", "s", "m", "h"];
    let number = units.iter().find_map(|unit| value.strip_suffix(unit));
    number.is_some_and(|number| {
        (1..=6).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}
