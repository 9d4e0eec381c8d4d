//! Field selectors over the few fields that Kubernetes makes selectable.

use kubevitals_model::{FieldSelectorError as GrammarError, FieldTerm, parse_field_selector};
use thiserror::Error;

use super::Record;
use crate::api::resources::ResourceInfo;

/// A parsed field selector: all terms must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FieldSelector {
    terms: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    field: Field,
    term: FieldTerm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Name,
    Namespace,
    /// Index in `ResourceInfo::fields`.
    Other(usize),
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum FieldSelectorError {
    #[error(transparent)]
    Grammar(#[from] GrammarError),
    #[error("field label not supported: {label}")]
    Unsupported { label: String },
    #[error(
        "{label:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
    )]
    Unknown { label: String },
}

impl FieldSelector {
    pub(crate) fn parse(info: &ResourceInfo, selector: &str) -> Result<Self, FieldSelectorError> {
        let terms = parse_field_selector(selector)?
            .into_iter()
            .map(|term| {
                Ok(Term {
                    field: resolve(info, &term.field)?,
                    term,
                })
            })
            .collect::<Result<_, FieldSelectorError>>()?;
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
            term.term.holds(value)
        })
    }
}

fn resolve(info: &ResourceInfo, label: &str) -> Result<Field, FieldSelectorError> {
    match label {
        "metadata.name" => return Ok(Field::Name),
        "metadata.namespace" if info.namespaced => return Ok(Field::Namespace),
        _ => {}
    }
    if let Some(index) = info.fields.iter().position(|field| *field == label) {
        return Ok(Field::Other(index));
    }
    let label = label.to_owned();
    Err(if info.fields.is_empty() {
        FieldSelectorError::Unknown { label }
    } else {
        FieldSelectorError::Unsupported { label }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::api::resources;
    use crate::objects::Resource;
    use crate::store::Content;

    fn pod() -> Record {
        let object = json!({
            "metadata": {"name": "web", "namespace": "prod"},
            "spec": {"nodeName": "n1"},
            "status": {"phase": "Running"},
        });
        let info = resources::info(Resource::Pods);
        let content = Content::encode(info, object.as_object().unwrap()).unwrap();
        Record::new(Arc::from("prod/web"), 1, content)
    }

    fn parse(selector: &str) -> Result<FieldSelector, FieldSelectorError> {
        FieldSelector::parse(resources::info(Resource::Pods), selector)
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
    fn unknown_fields_are_rejected_with_the_servers_message() {
        let error = parse("spec.colour=red").unwrap_err();
        assert_eq!(error.to_string(), "field label not supported: spec.colour");
        let leases = resources::info(Resource::Leases);
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
}
