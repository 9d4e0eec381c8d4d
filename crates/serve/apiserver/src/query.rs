//! Query parameters of the Kubernetes API.

use std::time::Duration;

use kubevitals_http::query::Query;
use kubevitals_model::{FieldTerm, LabelSelector, parse_field_selector};

use crate::resource::{IncludeObject, ResourceInfo};
use crate::status::ApiStatus;

/// The options of a list or a watch.
#[derive(Debug)]
pub(crate) struct ListOptions {
    pub(crate) labels: LabelSelector,
    pub(crate) fields: Vec<FieldTerm>,
    pub(crate) resource_version: String,
    pub(crate) timeout: Option<Duration>,
    pub(crate) allow_bookmarks: bool,
    pub(crate) send_initial_events: Option<bool>,
}

/// Whether `watch` is set. A parameter without a value, and any value but `false` and `0`, is true.
pub(crate) fn is_watch(query: Query<'_>) -> bool {
    flag(query, "watch").unwrap_or_default()
}

pub(crate) fn pretty(query: Query<'_>) -> Option<bool> {
    let value = query.first("pretty").filter(|value| !value.is_empty())?;
    Some(matches!(
        &*value,
        "1" | "t" | "T" | "true" | "TRUE" | "True"
    ))
}

pub(crate) fn include_object(query: Query<'_>) -> Result<IncludeObject, ApiStatus> {
    match &*query.first("includeObject").unwrap_or_default() {
        "" | "Metadata" => Ok(IncludeObject::Metadata),
        "None" => Ok(IncludeObject::None),
        "Object" => Ok(IncludeObject::Object),
        other => Err(ApiStatus::bad_request(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: \
             must be 'Metadata', 'Object', 'None', or empty"
        ))),
    }
}

impl ListOptions {
    pub(crate) fn parse(query: Query<'_>, resource: &ResourceInfo) -> Result<Self, ApiStatus> {
        let text = |name: &str| query.first(name).unwrap_or_default();
        let labels = LabelSelector::parse(&text("labelSelector"))
            .map_err(|error| ApiStatus::bad_request(error.to_string()))?;
        let fields = parse_field_selector(&text("fieldSelector"))
            .map_err(|error| ApiStatus::bad_request(error.to_string()))?;
        if let Some(unknown) = fields
            .iter()
            .find(|term| !resource.selectable_fields.contains(&term.field.as_str()))
        {
            let known: Vec<String> = resource
                .selectable_fields
                .iter()
                .map(|field| format!("{field:?}"))
                .collect();
            return Err(ApiStatus::bad_request(format!(
                "{:?} is not a known field selector: only {}",
                unknown.field,
                known.join(", ")
            )));
        }
        // Lists are never paged, but an invalid limit is rejected as Kubernetes does.
        integer(query, "limit")?;
        let seconds = integer(query, "timeoutSeconds")?;
        Ok(Self {
            labels,
            fields,
            resource_version: text("resourceVersion").into_owned(),
            timeout: seconds
                .and_then(|seconds| u64::try_from(seconds).ok())
                .filter(|seconds| *seconds > 0)
                .map(Duration::from_secs),
            allow_bookmarks: flag(query, "allowWatchBookmarks").unwrap_or_default(),
            send_initial_events: flag(query, "sendInitialEvents"),
        })
    }
}

fn flag(query: Query<'_>, name: &str) -> Option<bool> {
    let value = query.first(name)?;
    Some(!matches!(&*value.to_ascii_lowercase(), "false" | "0"))
}

fn integer(query: Query<'_>, name: &str) -> Result<Option<i64>, ApiStatus> {
    match query.first(name).filter(|value| !value.is_empty()) {
        None => Ok(None),
        Some(value) => value.parse().map(Some).map_err(|_| {
            ApiStatus::bad_request(format!(
                "strconv.ParseInt: parsing {value:?}: invalid syntax"
            ))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource() -> ResourceInfo {
        ResourceInfo {
            plural: "widgets",
            singular: "widget",
            kind: "Widget",
            list_kind: "WidgetList",
            namespaced: true,
            selectable_fields: &["metadata.name", "metadata.namespace"],
            watchable: true,
            schemas: "{}",
        }
    }

    #[test]
    fn list_options_are_parsed() {
        let query = "labelSelector=a%3Db&fieldSelector=metadata.name%3Dx&timeoutSeconds=7&limit=5\
                     &allowWatchBookmarks=true&sendInitialEvents=false&resourceVersion=12";
        let options = ListOptions::parse(Query::new(Some(query)), &resource()).unwrap();
        assert_eq!(options.fields.len(), 1);
        assert!(!options.labels.is_empty());
        assert_eq!(options.timeout, Some(Duration::from_secs(7)));
        assert!(options.allow_bookmarks);
        assert_eq!(options.send_initial_events, Some(false));
        assert_eq!(options.resource_version, "12");
    }

    #[test]
    fn invalid_options_are_rejected_with_the_messages_of_kubernetes() {
        let rejected = |query| {
            let status = ListOptions::parse(Query::new(Some(query)), &resource()).unwrap_err();
            format!("{status:?}")
        };
        assert!(
            rejected("limit=x").contains("strconv.ParseInt: parsing \\\"x\\\": invalid syntax")
        );
        assert!(rejected("labelSelector=a===b").contains("unable to parse requirement"));
        assert!(rejected("fieldSelector=spec.nodeName%3Db").contains(
            "\\\"spec.nodeName\\\" is not a known field selector: only \\\"metadata.name\\\", \\\"metadata.namespace\\\""
        ));
    }
}
