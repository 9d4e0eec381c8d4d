//! Matching of label and field selectors as the API server does it, without an API server.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubevitals_model::LabelSelector;
use serde_json::Value;
use thiserror::Error;

use crate::api::resources;
use crate::objects::{Resource, WriteError};
use crate::store::{Content, FieldSelector, Record, join_key};

/// An error of matching a selector.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SelectorError {
    /// The selector is invalid, or names a field that is not selectable.
    #[error("{reason}")]
    Selector {
        /// The message of the API server.
        reason: String,
    },
    /// The object could not be stored.
    #[error("the object could not be stored")]
    Object(#[from] WriteError),
}

/// Whether a `labelSelector` selects an object with these labels.
pub fn labels_match(
    selector: &str,
    labels: &BTreeMap<String, String>,
) -> Result<bool, SelectorError> {
    let selector = LabelSelector::parse(selector).map_err(|error| invalid(&error))?;
    Ok(selector.matches(|key| labels.get(key).map(String::as_str)))
}

/// Whether a `fieldSelector` on a resource selects this object of it.
pub fn fields_match(
    resource: Resource,
    selector: &str,
    object: &Value,
) -> Result<bool, SelectorError> {
    let info = resources::info(resource);
    let selector = FieldSelector::parse(info, selector).map_err(|error| invalid(&error))?;
    let nothing = serde_json::Map::new();
    let content = Content::encode(info, object.as_object().unwrap_or(&nothing))?;
    let name = |pointer: &str| {
        let name = object.pointer(pointer).and_then(Value::as_str);
        name.unwrap_or_default()
    };
    let key = join_key(name("/metadata/namespace"), name("/metadata/name"));
    Ok(selector.matches(&Record::new(Arc::from(key), 0, content)))
}

fn invalid(error: &impl std::error::Error) -> SelectorError {
    SelectorError::Selector {
        reason: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_select_as_the_server_does() {
        let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
        assert_eq!(labels_match("app in (web, db),!tier", &labels), Ok(true));
        assert_eq!(labels_match("app!=web", &labels), Ok(false));
        let pod = json!({"metadata": {"name": "a", "namespace": "b"}, "spec": {"nodeName": "n"}});
        let of_pod = |selector| fields_match(Resource::Pods, selector, &pod);
        assert_eq!(of_pod("spec.nodeName=n,metadata.namespace=b"), Ok(true));
        assert_eq!(of_pod("metadata.name!=a"), Ok(false));
        assert_eq!(
            of_pod("spec.colour=red").unwrap_err().to_string(),
            "field label not supported: spec.colour"
        );
        assert!(matches!(
            fields_match(Resource::Pods, "", &json!(7)),
            Err(SelectorError::Object(_))
        ));
    }
}
