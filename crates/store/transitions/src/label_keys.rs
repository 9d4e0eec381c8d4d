//! The labels of pods that are carried into lines and metrics.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use kubevitals_model::Pod;

/// Maximum number of keys: each multiplies the label sets of the metrics.
const MAX_KEYS: usize = 16;

/// Maximum length of a key: a prefix of 253, a slash, and a name of 63.
const MAX_KEY: usize = 317;

/// Maximum length of a value in the API.
const MAX_VALUE: usize = 63;

/// The labels of pods that are carried into lines and metrics, from a comma-separated list of keys.
///
/// Each has a name that Prometheus accepts, as in kube-state-metrics: `label_` and the key in snake
/// case, with an underscore for every other character. Clones are cheap.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LabelKeys(Option<Arc<[LabelKey]>>);

#[derive(Debug, PartialEq, Eq)]
struct LabelKey {
    key: Box<str>,
    name: Box<str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelKeysError {
    /// Not the key of a label.
    InvalidKey {
        found: String,
    },
    /// Two keys have one name.
    SameName {
        first: String,
        second: String,
    },
    TooMany,
}

impl LabelKeys {
    /// The names, in the order of the list.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.keys().iter().map(|key| &*key.name)
    }

    /// The value that a pod has for each key, in the order of the list; `None` without the label.
    pub fn values<'p>(&self, pod: &'p Pod) -> impl Iterator<Item = Option<&'p str>> {
        let values = self
            .keys()
            .iter()
            .map(|key| pod.summary.labels.get(&key.key));
        values.map(|value| value.map(|value| bounded(value)))
    }

    /// The labels that a pod has, by name.
    pub fn of<'k, 'p: 'k>(&'k self, pod: &'p Pod) -> impl Iterator<Item = (&'k str, &'p str)> {
        let named = self.names().zip(self.values(pod));
        named.filter_map(|(name, value)| Some((name, value?)))
    }

    fn keys(&self) -> &[LabelKey] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl FromStr for LabelKeys {
    type Err = LabelKeysError;

    fn from_str(text: &str) -> Result<Self, LabelKeysError> {
        let mut keys: Vec<LabelKey> = Vec::new();
        for key in text.split(',').map(str::trim).filter(|key| !key.is_empty()) {
            if !is_key(key) {
                return Err(LabelKeysError::InvalidKey {
                    found: key.to_owned(),
                });
            }
            let name = label_name(key);
            if let Some(first) = keys.iter().find(|known| *known.name == *name) {
                return Err(LabelKeysError::SameName {
                    first: first.key.to_string(),
                    second: key.to_owned(),
                });
            }
            if keys.len() >= MAX_KEYS {
                return Err(LabelKeysError::TooMany);
            }
            keys.push(LabelKey {
                key: key.into(),
                name: name.into(),
            });
        }
        Ok(Self((!keys.is_empty()).then(|| keys.into())))
    }
}

impl fmt::Display for LabelKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for LabelKey { key, .. } in self.keys() {
            write!(f, "{separator}{key}")?;
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Display for LabelKeysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidKey { found } => write!(f, "{found:?} is not the key of a label"),
            Self::SameName { first, second } => {
                let name = label_name(first);
                write!(f, "{first} and {second} would both be called {name}")
            }
            Self::TooMany => write!(f, "more than {MAX_KEYS} keys"),
        }
    }
}

impl std::error::Error for LabelKeysError {}

fn is_key(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_part = |part: &str| {
        let bytes = part.as_bytes();
        let ends = [bytes.first(), bytes.last()];
        ends.iter()
            .all(|end| end.is_some_and(u8::is_ascii_alphanumeric))
            && bytes.iter().copied().all(is_inner)
    };
    let mut parts = text.split('/');
    let is_short = text.len() <= MAX_KEY && text.split('/').count() <= 2;
    is_short && parts.all(is_part)
}

/// The name of a label as in kube-state-metrics.
fn label_name(key: &str) -> String {
    let mut name = "label_".to_owned();
    let mut before = ' ';
    for letter in key.chars() {
        let starts_word = before.is_ascii_lowercase() || before.is_ascii_digit();
        if letter.is_ascii_uppercase() && starts_word {
            name.push('_');
        }
        let is_kept = letter.is_ascii_alphanumeric();
        name.push(if is_kept {
            letter.to_ascii_lowercase()
        } else {
            '_'
        });
        before = letter;
    }
    name
}

/// The API server accepts no longer values.
fn bounded(value: &str) -> &str {
    value
        .get(..value.floor_char_boundary(MAX_VALUE))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_those_of_kube_state_metrics() {
        let text = "team,app.kubernetes.io/part-of,costCenter,tier2Name";
        let keys: LabelKeys = text.parse().unwrap();
        let names: Vec<&str> = keys.names().collect();
        assert_eq!(
            names,
            [
                "label_team",
                "label_app_kubernetes_io_part_of",
                "label_cost_center",
                "label_tier2_name"
            ]
        );
        assert_eq!(keys.to_string(), text);
        assert_eq!(" , ".parse(), Ok(LabelKeys::default()));
    }

    #[test]
    fn keys_are_validated_and_bounded() {
        for text in ["*", "a b", "-a", "a/", "/a", "a/b/c", "ä", &"a".repeat(318)] {
            let error = text.parse::<LabelKeys>().unwrap_err();
            let found = text.to_owned();
            assert_eq!(error, LabelKeysError::InvalidKey { found });
        }
        let error = "a.b,a-b".parse::<LabelKeys>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "a.b and a-b would both be called label_a_b"
        );
        let many: Vec<String> = (0..17).map(|number| format!("k{number}")).collect();
        let error = many.join(",").parse::<LabelKeys>().unwrap_err();
        assert_eq!(error, LabelKeysError::TooMany);
        assert!(many[..16].join(",").parse::<LabelKeys>().is_ok());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn accepted_keys_have_distinct_names_that_prometheus_accepts(text in "[a-zA-Z0-9./_, *-]{0,60}") {
            let Ok(keys) = text.parse::<LabelKeys>() else {
                return Ok(());
            };
            let names: Vec<&str> = keys.names().collect();
            for name in &names {
                let rest = name.strip_prefix("label_").unwrap();
                prop_assert!(!rest.is_empty());
                prop_assert!(rest.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_'));
            }
            let distinct: std::collections::BTreeSet<&str> = names.iter().copied().collect();
            prop_assert_eq!(distinct.len(), names.len());
            prop_assert_eq!(keys.to_string().parse(), Ok(keys));
        }
    }
}
