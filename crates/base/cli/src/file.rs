//! The configuration file: a YAML mapping from flag names to values, or to one section per command.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use crate::error::CliError;

/// The maximum size of a configuration file; a larger file is a mistake, or an attack.
pub const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// The settings of a file by key, in the order of their names.
pub(crate) type Settings = BTreeMap<String, Located>;

/// A value and its line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Located {
    pub(crate) line: u64,
    pub(crate) value: Setting,
}

/// The value of a key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Setting {
    /// `key:` without a value: as if the key were not there.
    Empty,
    /// A scalar, in the form of a flag value.
    Scalar(String),
    /// The values of a repeatable flag.
    List(Vec<String>),
    /// The settings of one command.
    Section(Settings),
}

/// Reads and parses `path`, never holding more than [`MAX_CONFIG_BYTES`] of it.
pub(crate) fn read(path: &Path) -> Result<Settings, CliError> {
    let failed = |source| CliError::ReadFile {
        path: path.to_owned(),
        source,
    };
    let mut text = String::new();
    std::fs::File::open(path)
        .map_err(failed)?
        .take(MAX_CONFIG_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    if text.len() as u64 > MAX_CONFIG_BYTES {
        return Err(CliError::FileTooLarge {
            path: path.to_owned(),
            limit: MAX_CONFIG_BYTES,
        });
    }
    parse(&text).map_err(|problem| CliError::ParseFile {
        path: path.to_owned(),
        problem,
    })
}

/// Checks the syntax of a configuration file, whatever its settings.
pub fn check_config_text(text: &str) -> Result<(), String> {
    parse(text).map(drop)
}

/// Parses the text of a configuration file.
pub(crate) fn parse(text: &str) -> Result<Settings, String> {
    // A file of comments alone is an empty configuration.
    let document: Option<Spanned<Setting>> =
        serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    match document.map(|document| document.value) {
        None | Some(Setting::Empty) => Ok(Settings::new()),
        Some(Setting::Section(settings)) => Ok(settings),
        Some(Setting::Scalar(_) | Setting::List(_)) => Err(
            "it must be a mapping from flag names to values, such as `log-level: info`".to_owned(),
        ),
    }
}

impl<'de> Deserialize<'de> for Setting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SettingVisitor)
    }
}

/// A scalar inside a list.
struct Scalar(String);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Setting::deserialize(deserializer)? {
            Setting::Scalar(text) => Ok(Self(text)),
            _ => Err(D::Error::custom("a list may contain only plain values")),
        }
    }
}

struct SettingVisitor;

impl<'de> Visitor<'de> for SettingVisitor {
    type Value = Setting;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, a list of values, or a section of settings")
    }

    fn visit_unit<E: Error>(self) -> Result<Setting, E> {
        Ok(Setting::Empty)
    }

    fn visit_none<E: Error>(self) -> Result<Setting, E> {
        Ok(Setting::Empty)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Setting, D::Error> {
        Setting::deserialize(deserializer)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Setting, E> {
        Ok(Setting::Scalar(value.to_string()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Setting, E> {
        Ok(Setting::Scalar(value.to_string()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Setting, E> {
        Ok(Setting::Scalar(value.to_string()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Setting, E> {
        Ok(Setting::Scalar(value.to_string()))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Setting, E> {
        Ok(Setting::Scalar(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Setting, A::Error> {
        let mut list = Vec::new();
        while let Some(Scalar(text)) = items.next_element()? {
            list.push(text);
        }
        Ok(Setting::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Setting, A::Error> {
        let mut settings = Settings::new();
        while let Some((key, value)) = entries.next_entry::<String, Spanned<Setting>>()? {
            let located = Located {
                line: value.referenced.line(),
                value: value.value,
            };
            if settings.insert(key.clone(), located).is_some() {
                return Err(A::Error::custom(format!("`{key}` is set twice")));
            }
        }
        Ok(Setting::Section(settings))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scalar(line: u64, text: &str) -> Located {
        Located {
            line,
            value: Setting::Scalar(text.to_owned()),
        }
    }

    #[test]
    fn scalars_lists_and_sections_have_their_lines() {
        let settings = parse(
            "# a comment\nlog-level: debug\nkubelet-port: 10250\nprofiling: true\n\
             server:\n  metric-resolution: 15s\n  names:\n  - a\n  - 7\n",
        )
        .unwrap();
        assert_eq!(settings["log-level"], scalar(2, "debug"));
        assert_eq!(settings["kubelet-port"], scalar(3, "10250"));
        assert_eq!(settings["profiling"], scalar(4, "true"));
        let Setting::Section(server) = &settings["server"].value else {
            panic!("no section")
        };
        assert_eq!(server["metric-resolution"], scalar(6, "15s"));
        assert_eq!(
            server["names"].value,
            Setting::List(vec!["a".to_owned(), "7".to_owned()])
        );
    }

    #[test]
    fn an_empty_file_sets_nothing() {
        assert_eq!(parse(""), Ok(Settings::new()));
        assert_eq!(parse("# only a comment\n"), Ok(Settings::new()));
        assert_eq!(
            parse("log-level:\n").unwrap()["log-level"].value,
            Setting::Empty
        );
    }

    #[test]
    fn anything_but_a_mapping_is_rejected() {
        assert!(
            parse("just words")
                .unwrap_err()
                .contains("mapping from flag names")
        );
        assert!(
            parse("- a\n- b\n")
                .unwrap_err()
                .contains("mapping from flag names")
        );
        assert!(parse("a: [[1]]").unwrap_err().contains("plain values"));
        assert!(parse("a: 1\na: 2\n").is_err());
        assert!(parse("a: [").is_err());
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig {
            failure_persistence: None,
            ..Default::default()
        })]

        #[test]
        fn arbitrary_text_never_panics(text in "[\\x00-\\x7f\u{e4}\u{2028}]{0,200}") {
            let _ = parse(&text);
        }
    }
}
