//! Field selectors over the few fields that Kubernetes makes selectable.

use thiserror::Error;

use super::Record;
use crate::api::catalog::Facts;

/// A parsed field selector: all terms must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FieldSelector {
    terms: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    field: Field,
    negated: bool,
    value: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Name,
    Namespace,
    /// The place in the catalog's list.
    Other(usize),
}

/// Why a selector cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum FieldSelectorError {
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    Syntax { selector: String, term: String },
    #[error("invalid field selector: {value} contains an invalid escape sequence")]
    Escape { value: String },
    #[error("field label not supported: {label}")]
    Unsupported { label: String },
    #[error(
        "{label:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
    )]
    Unknown { label: String },
}

impl FieldSelector {
    pub(crate) fn parse(facts: &Facts, selector: &str) -> Result<Self, FieldSelectorError> {
        let mut terms = Vec::new();
        for term in split_terms(selector) {
            if term.is_empty() {
                continue;
            }
            let (label, negated, value) =
                split_operator(term).ok_or_else(|| FieldSelectorError::Syntax {
                    selector: selector.to_owned(),
                    term: term.to_owned(),
                })?;
            terms.push(Term {
                field: resolve(facts, label)?,
                negated,
                value: unescape(value)?,
            });
        }
        Ok(Self { terms })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    pub(crate) fn matches(&self, record: &Record) -> bool {
        self.terms.iter().all(|term| {
            let value = match term.field {
                Field::Name => record.name(),
                Field::Namespace => record.namespace(),
                Field::Other(index) => record.field(index),
            };
            (value == term.value) != term.negated
        })
    }
}

fn resolve(facts: &Facts, label: &str) -> Result<Field, FieldSelectorError> {
    match label {
        "metadata.name" => return Ok(Field::Name),
        "metadata.namespace" if facts.namespaced => return Ok(Field::Namespace),
        _ => {}
    }
    if let Some(index) = facts.fields.iter().position(|field| *field == label) {
        return Ok(Field::Other(index));
    }
    let label = label.to_owned();
    Err(if facts.fields.is_empty() {
        FieldSelectorError::Unknown { label }
    } else {
        FieldSelectorError::Unsupported { label }
    })
}

/// Splits at commas that are not escaped.
fn split_terms(selector: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let mut start = 0;
    let mut escaped = false;
    for (at, c) in selector.char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == ',' {
            terms.push(selector.get(start..at).unwrap_or_default());
            start = at + 1;
        }
    }
    terms.push(selector.get(start..).unwrap_or_default());
    terms
}

/// Splits at the first operator.
fn split_operator(term: &str) -> Option<(&str, bool, &str)> {
    let at = term.char_indices().find_map(|(at, _)| {
        let rest = term.get(at..)?;
        if rest.starts_with("!=") {
            Some((at, 2, true))
        } else if rest.starts_with("==") {
            Some((at, 2, false))
        } else if rest.starts_with('=') {
            Some((at, 1, false))
        } else {
            None
        }
    });
    let (at, width, negated) = at?;
    Some((term.get(..at)?, negated, term.get(at + width..)?))
}

fn unescape(value: &str) -> Result<String, FieldSelectorError> {
    let invalid = || FieldSelectorError::Escape {
        value: value.to_owned(),
    };
    let mut text = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => text.push(c),
                _ => return Err(invalid()),
            },
            // An operator inside of a value must be escaped.
            '=' => return Err(invalid()),
            c => text.push(c),
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::api::catalog;
    use crate::objects::Resource;
    use crate::store::Content;

    fn pod() -> Record {
        let object = json!({
            "metadata": {"name": "web", "namespace": "prod"},
            "spec": {"nodeName": "n1"},
            "status": {"phase": "Running"},
        });
        let facts = catalog::facts(Resource::Pods);
        let content = Content::encode(facts, object.as_object().unwrap()).unwrap();
        Record::new(Arc::from("prod/web"), 1, content)
    }

    fn parse(selector: &str) -> Result<FieldSelector, FieldSelectorError> {
        FieldSelector::parse(catalog::facts(Resource::Pods), selector)
    }

    #[test]
    fn terms_select() {
        let pod = pod();
        for selector in [
            "",
            ",",
            "metadata.name=web",
            "metadata.namespace==prod,spec.nodeName=n1",
            "status.phase!=Succeeded,status.phase!=Failed",
            "spec.hostNetwork=false",
            "status.podIP=",
        ] {
            assert!(parse(selector).unwrap().matches(&pod), "{selector}");
        }
        for selector in [
            "metadata.name!=web",
            "spec.nodeName=",
            "status.phase=Pending",
        ] {
            assert!(!parse(selector).unwrap().matches(&pod), "{selector}");
        }
    }

    #[test]
    fn unknown_fields_are_refused_in_the_servers_words() {
        let error = parse("spec.colour=red").unwrap_err();
        assert_eq!(error.to_string(), "field label not supported: spec.colour");
        let leases = catalog::facts(Resource::Leases);
        let error = FieldSelector::parse(leases, "spec.holderIdentity=x").unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"spec.holderIdentity\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        );
        let error = parse("metadata.name").unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid selector: 'metadata.name'; can't understand 'metadata.name'"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        #[test]
        fn arbitrary_text_never_panics(text in "[a-z.=!,\\\\é]{0,24}") {
            let _ = parse(&text);
        }

        #[test]
        fn escaped_values_come_back(value in "[a-z,=\\\\é]{0,12}") {
            let escaped = value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
            let selector = parse(&format!("metadata.name={escaped},status.phase=Running")).unwrap();
            prop_assert_eq!(&selector.terms[0].value, &value);
            prop_assert_eq!(selector.terms.len(), 2);
        }
    }
}
