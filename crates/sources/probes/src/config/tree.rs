//! A YAML document as a tree with line numbers, before it is known what it means.
//!
//! A tree instead of structs that serde fills, because a problem should name the key's path and
//! line and the next best key, and because all problems of a file should be reported at once.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// Maximum size of a configuration file; a larger one is a mistake, or an attack.
pub(crate) const MAX_CONFIG_BYTES: usize = 1 << 20;

/// Maximum nesting; a configuration needs eight levels.
const MAX_DEPTH: usize = 32;

/// A value and the line where it begins.
#[derive(Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) line: u64,
    pub(crate) value: Value,
}

/// A value of YAML.
#[derive(Clone, PartialEq)]
pub(crate) enum Value {
    /// `key:` without a value: as if the key were not there.
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    /// In the order of the file. No key occurs twice.
    Map(Vec<(String, Node)>),
}

/// Parses a document. The error is for people, and shows nothing of the text: it may have secrets.
pub(crate) fn parse(text: &str) -> Result<Node, String> {
    if text.len() > MAX_CONFIG_BYTES {
        return Err(format!(
            "it is larger than {MAX_CONFIG_BYTES} bytes; split it into several files"
        ));
    }
    let options = serde_saphyr::options! {
        with_snippet: false,
        // `n` and `on` are texts, unless a boolean is expected.
        strict_booleans: true,
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_documents: 1,
            max_nodes: 100_000,
        },
    };
    // A file of comments alone is an empty document.
    let document: Option<Node> =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string())?;
    Ok(document.unwrap_or(Node {
        line: 1,
        value: Value::Null,
    }))
}

impl Value {
    /// What it is, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "a boolean",
            Self::Integer(_) => "an integer",
            Self::Float(_) => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}

#[cfg(test)]
impl Node {
    /// The value of a key, if this is a mapping that has it.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        match &self.value {
            Value::Map(entries) => entries
                .iter()
                .find(|(name, _)| name == key)
                .map(|(_, value)| value),
            _ => None,
        }
    }
}

/// Shows no values: they may be secrets.
impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({} at line {})", self.value.kind(), self.line)
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self {
            line: spanned.referenced.line(),
            value: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, a list or a mapping")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Integer(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        // No setting is that large; as a text it is refused where a number is expected.
        Ok(i64::try_from(value).map_or_else(|_| Value::Text(value.to_string()), Value::Integer))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map: Vec<(String, Node)> = Vec::new();
        let mut names = std::collections::HashSet::new();
        while let Some((key, value)) = entries.next_entry::<String, Node>()? {
            if !names.insert(key.clone()) {
                return Err(A::Error::custom(format!("`{key}` is set twice")));
            }
            map.push((key, value));
        }
        Ok(Value::Map(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_kinds_and_lines() {
        let node = parse("a: text\nb:\n  - 1\n  - true\n  - 1.5\n  - \"1\"\nc:\n").unwrap();
        assert_eq!(node.get("a").unwrap().line, 1);
        assert_eq!(node.get("c").unwrap().value, Value::Null);
        let Value::List(items) = &node.get("b").unwrap().value else {
            panic!("not a list");
        };
        let kinds: Vec<_> = items.iter().map(|item| item.value.kind()).collect();
        assert_eq!(kinds, ["an integer", "a boolean", "a number", "a text"]);
        assert_eq!(items[1].line, 4);
    }

    /// The examples of blackbox_exporter have `!!binary`.
    #[test]
    fn binary_text_is_decoded() {
        let node = parse("expect: !!binary SGVsbG8=\n").unwrap();
        assert_eq!(
            node.get("expect").unwrap().value,
            Value::Text("Hello".to_owned())
        );
    }

    #[test]
    fn an_empty_document_is_null() {
        assert_eq!(parse("# nothing\n").unwrap().value, Value::Null);
    }

    #[test]
    fn a_problem_shows_nothing_of_the_text() {
        let problem = parse("password: hunter2\n  broken: [\n").unwrap_err();
        assert!(!problem.contains("hunter2"), "{problem}");
        let node = parse("password: hunter2\n").unwrap();
        assert!(!format!("{node:?}").contains("hunter2"));
    }

    #[test]
    fn large_deep_and_doubled_documents_are_refused() {
        assert!(parse(&"a".repeat(MAX_CONFIG_BYTES + 1)).is_err());
        assert!(parse(&"[".repeat(100)).is_err());
        let deep = format!("{}1{}", "[".repeat(40), "]".repeat(40));
        assert!(parse(&deep).is_err());
        assert!(parse("a: 1\na: 2\n").is_err());
    }
}
