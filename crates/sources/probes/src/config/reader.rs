//! Reads settings from a tree. It collects all problems, each with the path and the line of its
//! key, and reports keys that nobody asked for.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use kubevitals_model::GoDuration;

use super::tree::{Node, Value};
use crate::error::{Problem, Problems};

/// Maximum number of characters of a value in a message.
const EXCERPT: usize = 40;

/// Collects the problems of one file.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    file: Option<String>,
    problems: RefCell<Problems>,
}

/// A value and the path to it.
#[derive(Debug, Clone)]
pub(crate) struct Item<'a> {
    reader: &'a Reader,
    pub(crate) node: &'a Node,
    pub(crate) path: String,
}

/// A mapping with known keys. A key is known once it was asked for.
#[derive(Debug)]
pub(crate) struct Section<'a> {
    reader: &'a Reader,
    path: String,
    line: u64,
    entries: &'a [(String, Node)],
    known: RefCell<BTreeSet<&'static str>>,
}

impl Reader {
    /// A reader of a file with this name, for messages.
    pub(crate) fn new(file: Option<&str>) -> Self {
        Self {
            file: file.map(str::to_owned),
            problems: RefCell::default(),
        }
    }

    pub(crate) fn root<'a>(&'a self, node: &'a Node) -> Item<'a> {
        Item {
            reader: self,
            node,
            path: String::new(),
        }
    }

    pub(crate) fn report(&self, path: &str, line: u64, text: impl Into<String>) {
        self.problems.borrow_mut().push(Problem {
            file: self.file.clone(),
            line,
            path: path.to_owned(),
            text: text.into(),
        });
    }

    pub(crate) fn into_problems(self) -> Problems {
        self.problems.into_inner()
    }
}

impl<'a> Item<'a> {
    pub(crate) fn report(&self, text: impl Into<String>) {
        self.reader.report(&self.path, self.node.line, text);
    }

    /// Reads a mapping; the caller ends it with [`Section::finish`].
    pub(crate) fn section(&self) -> Option<Section<'a>> {
        let entries = match &self.node.value {
            Value::Map(entries) => entries.as_slice(),
            Value::Null => &[],
            other => {
                self.report(format!("must be a mapping, not {}", other.kind()));
                return None;
            }
        };
        Some(Section {
            reader: self.reader,
            path: self.path.clone(),
            line: self.node.line,
            entries,
            known: RefCell::default(),
        })
    }

    /// The entries of a mapping whose keys are names that the user chose.
    pub(crate) fn entries(&self) -> Vec<(&'a str, Self)> {
        match &self.node.value {
            Value::Map(entries) => entries
                .iter()
                .map(|(name, node)| {
                    let item = Self {
                        reader: self.reader,
                        node,
                        path: join(&self.path, name),
                    };
                    (name.as_str(), item)
                })
                .collect(),
            Value::Null => Vec::new(),
            other => {
                self.report(format!("must be a mapping, not {}", other.kind()));
                Vec::new()
            }
        }
    }

    pub(crate) fn items(&self) -> Vec<Self> {
        match &self.node.value {
            Value::List(items) => items
                .iter()
                .enumerate()
                .map(|(index, node)| Self {
                    reader: self.reader,
                    node,
                    path: format!("{}[{index}]", self.path),
                })
                .collect(),
            Value::Null => Vec::new(),
            other => {
                self.report(format!("must be a list, not {}", other.kind()));
                Vec::new()
            }
        }
    }

    pub(crate) fn text(&self) -> Option<String> {
        match &self.node.value {
            Value::Text(text) => Some(text.clone()),
            Value::Integer(number) => Some(number.to_string()),
            Value::Null => None,
            other @ (Value::Bool(_) | Value::Float(_)) => {
                self.report(format!(
                    "must be a text, but YAML reads it as {}; put it in quotes",
                    other.kind()
                ));
                None
            }
            other => {
                self.report(format!("must be a text, not {}", other.kind()));
                None
            }
        }
    }

    pub(crate) fn boolean(&self) -> Option<bool> {
        match &self.node.value {
            Value::Bool(value) => Some(*value),
            // As Go reads them where a boolean is expected.
            Value::Text(text) if ["yes", "on"].contains(&text.as_str()) => Some(true),
            Value::Text(text) if ["no", "off"].contains(&text.as_str()) => Some(false),
            Value::Null => None,
            other => {
                self.report(format!("must be `true` or `false`, not {}", other.kind()));
                None
            }
        }
    }

    pub(crate) fn unsigned(&self, limit: u64) -> Option<u64> {
        let number = match &self.node.value {
            Value::Integer(number) => u64::try_from(*number).ok(),
            Value::Null => return None,
            _ => None,
        };
        let number = number.filter(|number| *number <= limit);
        if number.is_none() {
            self.report(format!("must be an integer from 0 to {limit}"));
        }
        number
    }

    /// Reads a duration as Go writes it.
    pub(crate) fn duration(&self) -> Option<Duration> {
        let text = match &self.node.value {
            Value::Text(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            Value::Null => return None,
            other => {
                self.report(format!(
                    "must be a duration such as `30s`, not {}",
                    other.kind()
                ));
                return None;
            }
        };
        let duration = text
            .parse::<GoDuration>()
            .and_then(Duration::try_from)
            .map_err(|error| self.report(error.to_string()));
        duration.ok()
    }
}

impl<'a> Section<'a> {
    /// Reports a problem of the whole section.
    pub(crate) fn report(&self, text: impl Into<String>) {
        self.reader.report(&self.path, self.line, text);
    }

    /// Reports a problem of a key, which may be absent.
    pub(crate) fn report_at(&self, key: &str, text: impl Into<String>) {
        let line = self.node(key).map_or(self.line, |node| node.line);
        self.reader.report(&join(&self.path, key), line, text);
    }

    fn node(&self, key: &str) -> Option<&'a Node> {
        self.entries
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, node)| node)
    }

    /// The value of a key, unless it is absent or has no value.
    pub(crate) fn item(&self, key: &'static str) -> Option<Item<'a>> {
        self.known.borrow_mut().insert(key);
        let node = self.node(key)?;
        if node.value == Value::Null {
            return None;
        }
        Some(Item {
            reader: self.reader,
            node,
            path: join(&self.path, key),
        })
    }

    pub(crate) fn section(&self, key: &'static str) -> Option<Section<'a>> {
        self.item(key)?.section()
    }

    pub(crate) fn text(&self, key: &'static str) -> Option<String> {
        self.item(key)?.text()
    }

    pub(crate) fn boolean(&self, key: &'static str) -> Option<bool> {
        self.item(key)?.boolean()
    }

    pub(crate) fn duration(&self, key: &'static str) -> Option<Duration> {
        self.item(key)?.duration()
    }

    pub(crate) fn unsigned(&self, key: &'static str, limit: u64) -> Option<u64> {
        self.item(key)?.unsigned(limit)
    }

    pub(crate) fn items(&self, key: &'static str) -> Vec<Item<'a>> {
        self.item(key).map(|item| item.items()).unwrap_or_default()
    }

    pub(crate) fn texts(&self, key: &'static str) -> Vec<String> {
        self.items(key).iter().filter_map(Item::text).collect()
    }

    /// Refuses a key that blackbox_exporter has and we do not.
    pub(crate) fn refuse(&self, key: &'static str, why: &str) {
        if let Some(item) = self.item(key)
            && item.node.value != Value::Bool(false)
        {
            item.report(why);
        }
    }

    /// Reports the keys that nobody asked for.
    pub(crate) fn finish(self) {
        let known = self.known.borrow();
        for (name, node) in self.entries {
            if known.contains(name.as_str()) {
                continue;
            }
            let name = excerpt(name);
            let all = || known.iter().copied().collect::<Vec<_>>().join(", ");
            let text = match nearest(&name, known.iter().copied()) {
                Some(nearest) => format!("unknown key; did you mean `{nearest}`?"),
                None if known.is_empty() => "unknown key; there are none here".to_owned(),
                None => format!("unknown key; remove it, or use one of: {}", all()),
            };
            self.reader
                .report(&join(&self.path, &name), node.line, text);
        }
    }
}

/// The beginning of a text, printable.
pub(crate) fn excerpt(text: &str) -> String {
    let mut short: String = text
        .chars()
        .take(EXCERPT)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(EXCERPT).is_some() {
        short.push('…');
    }
    short
}

/// The candidate with the fewest edits, unless even that is too different.
pub(crate) fn nearest<'c>(
    wanted: &str,
    candidates: impl IntoIterator<Item = &'c str>,
) -> Option<&'c str> {
    let limit = (wanted.chars().count() / 3).max(2);
    candidates
        .into_iter()
        .map(|candidate| (strsim::levenshtein(wanted, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

fn join(path: &str, key: &str) -> String {
    let key = excerpt(key);
    if path.is_empty() {
        key
    } else {
        format!("{path}.{key}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tree;

    fn problems(text: &str, read: impl FnOnce(&Section<'_>)) -> Vec<String> {
        let node = tree::parse(text).unwrap();
        let reader = Reader::new(Some("probes.yaml"));
        if let Some(section) = reader.root(&node).section() {
            read(&section);
            section.finish();
        }
        reader
            .into_problems()
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn an_unknown_key_is_named_with_the_nearest_known_one() {
        let found = problems("http:\n  methd: GET\n  other: 1\n", |root| {
            let http = root.section("http").unwrap();
            http.text("method");
            http.finish();
        });
        assert_eq!(
            found,
            [
                "probes.yaml:2: http.methd: unknown key; did you mean `method`?",
                "probes.yaml:3: http.other: unknown key; remove it, or use one of: method",
            ]
        );
    }

    #[test]
    fn values_of_the_wrong_kind_are_reported_with_their_path() {
        let found = problems(
            "text: [1]\nversion: 1.10\nflag: 1\nwait: 1d\nwhen: -3s\ncount: 300\nlist: x\nmap: 1\n",
            |root| {
                assert_eq!(root.text("text"), None);
                assert_eq!(root.text("version"), None);
                assert_eq!(root.boolean("flag"), None);
                assert_eq!(root.duration("wait"), None);
                assert_eq!(root.duration("when"), None);
                assert_eq!(root.unsigned("count", 255), None);
                assert!(root.items("list").is_empty());
                assert!(root.section("map").is_none());
            },
        );
        assert_eq!(found.len(), 8, "{found:#?}");
        assert!(found[1].contains("put it in quotes"), "{found:#?}");
        assert!(found[3].contains("wait"), "{found:#?}");
    }

    #[test]
    fn a_key_without_a_value_is_absent() {
        let found = problems("text:\nsection:\n", |root| {
            assert_eq!(root.text("text"), None);
            assert!(root.section("section").is_none());
        });
        assert!(found.is_empty());
    }

    #[test]
    fn words_are_booleans_only_where_one_is_expected() {
        let found = problems("a: no\nb: on\nc: n\n", |root| {
            assert_eq!(root.boolean("a"), Some(false));
            assert_eq!(root.boolean("b"), Some(true));
            assert_eq!(root.text("c").as_deref(), Some("n"));
            assert_eq!(root.text("a").as_deref(), Some("no"));
        });
        assert!(found.is_empty());
    }

    #[test]
    fn a_refused_key_is_reported_unless_it_is_off() {
        let found = problems("http3: true\n", |root| {
            root.refuse("http3", "not supported");
        });
        assert_eq!(found, ["probes.yaml:1: http3: not supported"]);
        assert!(problems("http3: false\n", |root| root.refuse("http3", "no")).is_empty());
    }
}
