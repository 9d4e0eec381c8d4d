//! Reads: one object by name, or many as a consistent page.

#![expect(
    clippy::indexing_slicing,
    reason = "JSON trees: a missing member reads as null, and all writes go to objects"
)]

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use kubevitals_model::LabelSelector;
use serde_json::{Value, json};

use super::body::{self, ApiResponse, Body};
use super::context::ApiContext;
use super::negotiate::View;
use super::request::{Parameters, Target};
use super::resources::ResourceInfo;
use super::status::ApiError;
use super::table;
use crate::store::{FieldSelector, Form, Query, Snapshot, join_key};

/// The version of the objects that a list requests.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ListVersion {
    /// The latest, which must not be older than this version.
    NotOlderThan(u64),
    Exactly(u64),
    /// The page after this key, as of this version or, if that had expired, the current one.
    Behind(String, Option<u64>),
}

const EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

/// Handles a `get`.
pub(crate) fn get(
    context: &ApiContext,
    info: &'static ResourceInfo,
    target: &Target,
    parameters: &Parameters,
    view: View,
) -> Result<ApiResponse, ApiError> {
    if let Some(version) = parse_version(parameters.get("resourceVersion"))? {
        reject_future_version(context, version)?;
    }
    let key = join_key(namespace(info, target), &target.name);
    let record = context
        .store
        .get(info.resource, &key)
        .ok_or_else(|| ApiError::not_found(info, &target.name))?;
    let mut text = Vec::new();
    match view {
        View::Object => record.write(&mut text, info, Form::Object),
        View::Metadata => record.write(&mut text, info, Form::Metadata),
        View::Table => {
            let include = table::Include::parse(parameters)?;
            let now = context.store.now();
            let document = table::document(info, &[record], include, now, &json!({}), true);
            return Ok(body::json(StatusCode::OK, &document));
        }
    }
    text.push(b'\n');
    Ok(body::raw_json(StatusCode::OK, text))
}

/// Handles a `list`.
pub(crate) fn list(
    context: &ApiContext,
    info: &'static ResourceInfo,
    target: &Target,
    parameters: &Parameters,
    view: View,
) -> Result<ApiResponse, ApiError> {
    validate(parameters)?;
    let query = query(info, target, parameters)?;
    let limit = parameters.number("limit")?.unwrap_or(0);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let snapshot = match requested_version(parameters)? {
        ListVersion::NotOlderThan(version) => {
            reject_future_version(context, version)?;
            context.store.snapshot(&query, None, None, limit)?
        }
        ListVersion::Exactly(version) => {
            reject_future_version(context, version)?;
            context.store.snapshot(&query, Some(version), None, limit)?
        }
        ListVersion::Behind(key, version) => {
            let at = version.filter(|version| *version <= context.store.version());
            context
                .store
                .snapshot(&query, at, Some(&key), limit)
                .map_err(|_| {
                    let mut error = ApiError::expired(EXPIRED);
                    error.continue_token = Some(token(-1, &key));
                    error
                })?
        }
    };
    let metadata = metadata(&query, &snapshot);
    let (kind, api_version, form) = match view {
        View::Object => (format!("{}List", info.kind), info.api_version(), Form::Item),
        View::Metadata => (
            "PartialObjectMetadataList".to_owned(),
            "meta.k8s.io/v1".to_owned(),
            Form::Metadata,
        ),
        View::Table => {
            let include = table::Include::parse(parameters)?;
            let now = context.store.now();
            let document = table::document(info, &snapshot.records, include, now, &metadata, true);
            return Ok(body::json(StatusCode::OK, &document));
        }
    };
    let head = format!(
        "{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":["
    );
    let items = Body::items(head.into_bytes(), snapshot.records, info, form);
    Ok(body::response(StatusCode::OK, "application/json", items))
}

/// Parses the selectors of a list or watch.
pub(crate) fn query(
    info: &'static ResourceInfo,
    target: &Target,
    parameters: &Parameters,
) -> Result<Query, ApiError> {
    let bad = |error: &dyn std::fmt::Display| ApiError::bad_request(error.to_string());
    let namespace = namespace(info, target);
    Ok(Query {
        resource: info.resource,
        namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
        labels: LabelSelector::parse(parameters.get("labelSelector")).map_err(|e| bad(&e))?,
        fields: FieldSelector::parse(info, parameters.get("fieldSelector")).map_err(|e| bad(&e))?,
    })
}

/// Returns the namespace of the object; the path of a namespace contains it twice.
pub(crate) fn namespace<'a>(info: &ResourceInfo, target: &'a Target) -> &'a str {
    if info.namespaced {
        &target.namespace
    } else {
        ""
    }
}

/// Parses a resource version; absent and empty are `None`.
pub(crate) fn parse_version(text: &str) -> Result<Option<u64>, ApiError> {
    match text {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| {
            ApiError::bad_request(format!(
                "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
            ))
        }),
    }
}

/// Rejects a version that this server has not reached yet.
pub(crate) fn reject_future_version(context: &ApiContext, version: u64) -> Result<(), ApiError> {
    let current = context.store.version();
    if version > current {
        return Err(ApiError::too_large_version(version, current));
    }
    Ok(())
}

fn validate(parameters: &Parameters) -> Result<(), ApiError> {
    let version = parameters.get("resourceVersion");
    let rule = parameters.get("resourceVersionMatch");
    let mut causes = Vec::new();
    let mut forbid = |field: &'static str, text: &str| {
        causes.push((field, format!("Forbidden: {text}")));
    };
    if !rule.is_empty() {
        if version.is_empty() {
            forbid(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            );
        }
        if !parameters.get("continue").is_empty() {
            forbid(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden when continue is provided",
            );
        }
        if rule == "Exact" && version == "0" {
            forbid(
                "resourceVersionMatch",
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            );
        }
    }
    if parameters.flag("sendInitialEvents").is_some() {
        forbid(
            "sendInitialEvents",
            "sendInitialEvents is forbidden for list",
        );
    }
    if !matches!(rule, "" | "Exact" | "NotOlderThan") {
        causes.push((
            "resourceVersionMatch",
            format!(
                "Unsupported value: {rule:?}: supported values: \"\", \"Exact\", \"NotOlderThan\""
            ),
        ));
    }
    if causes.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid_options(&causes))
}

fn requested_version(parameters: &Parameters) -> Result<ListVersion, ApiError> {
    let version = parse_version(parameters.get("resourceVersion"))?.unwrap_or(0);
    let token = parameters.get("continue");
    if !token.is_empty() {
        if version != 0 {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        return decode_token(token);
    }
    let limited = parameters.number("limit")?.unwrap_or(0) > 0;
    let exact = match parameters.get("resourceVersionMatch") {
        "Exact" => true,
        // Without a match rule, a paged list of a given version means exactly that version.
        "" => limited && version > 0,
        _ => false,
    };
    Ok(if exact {
        ListVersion::Exactly(version)
    } else {
        ListVersion::NotOlderThan(version)
    })
}

fn metadata(query: &Query, snapshot: &Snapshot) -> Value {
    let mut metadata = json!({"resourceVersion": snapshot.version.to_string()});
    if let (Some((last, remaining)), Some(members)) = (&snapshot.more, metadata.as_object_mut()) {
        let version = i64::try_from(snapshot.version).unwrap_or(i64::MAX);
        members.insert("continue".to_owned(), json!(token(version, last)));
        // With a selector, the number of remaining items is unknown.
        if query.is_unselective() {
            members.insert("remainingItemCount".to_owned(), json!(remaining));
        }
    }
    metadata
}

fn token(version: i64, last: &str) -> String {
    let token = json!({"v": "meta.k8s.io/v1", "rv": version, "start": format!("{last}\0")});
    URL_SAFE_NO_PAD.encode(token.to_string())
}

fn decode_token(token: &str) -> Result<ListVersion, ApiError> {
    let bad = |problem: &str| {
        ApiError::bad_request(format!(
            "invalid continue token: continue key is not valid{problem}"
        ))
    };
    let bytes = URL_SAFE_NO_PAD
        .decode(token.trim_end_matches('='))
        .map_err(|_| bad(""))?;
    let token: Value = serde_json::from_slice(&bytes).map_err(|_| bad(""))?;
    if token["v"] != "meta.k8s.io/v1" {
        return Err(bad(": server does not recognize this encoded version"));
    }
    let start = token["start"]
        .as_str()
        .unwrap_or_default()
        .trim_end_matches('\0');
    if start.is_empty() {
        return Err(bad(": encoded start key empty (version meta.k8s.io/v1)"));
    }
    match token["rv"].as_i64() {
        Some(0) | None => Err(bad(
            ": incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
        )),
        Some(version) => Ok(ListVersion::Behind(
            start.to_owned(),
            u64::try_from(version).ok(),
        )),
    }
}
