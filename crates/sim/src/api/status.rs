//! `Status` objects, with the messages of kube-apiserver.

#![expect(
    clippy::indexing_slicing,
    reason = "JSON trees: a missing member reads as null, and all writes go to objects"
)]

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::resources::ResourceInfo;
use crate::objects::WriteError;
use crate::store::Expired;

/// An error response of the API.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ApiError {
    pub(crate) code: StatusCode,
    reason: &'static str,
    message: String,
    details: Map<String, Value>,
    pub(crate) retry_after: Option<u64>,
    /// Continue token for an inconsistent list after the original one has expired.
    pub(crate) continue_token: Option<String>,
}

impl ApiError {
    pub(crate) fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: Map::new(),
            retry_after: None,
            continue_token: None,
        }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// The object does not exist.
    pub(crate) fn not_found(info: &ResourceInfo, name: &str) -> Self {
        let message = format!("{} {name:?} not found", qualified(info.plural, info.group));
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about(info.plural, info.group, name)
    }

    /// The path does not exist.
    pub(crate) fn no_such_path() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "NotFound",
            "the server could not find the requested resource",
        )
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
    }

    pub(crate) fn not_acceptable() -> Self {
        Self::new(
            StatusCode::NOT_ACCEPTABLE,
            "NotAcceptable",
            "only the following media types are accepted: application/json",
        )
    }

    pub(crate) fn unsupported_media_type(accepted: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted}"
        );
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            message,
        )
    }

    /// Each cause is the name of a parameter and the rule that it violates.
    pub(crate) fn invalid_options(causes: &[(&str, String)]) -> Self {
        let texts: Vec<String> = causes
            .iter()
            .map(|(field, text)| format!("{field}: {text}"))
            .collect();
        let message = match texts.as_slice() {
            [one] => format!("ListOptions.meta.k8s.io \"\" is invalid: {one}"),
            many => format!(
                "ListOptions.meta.k8s.io \"\" is invalid: [{}]",
                many.join(", ")
            ),
        };
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).about(
            "ListOptions",
            "meta.k8s.io",
            "",
        )
    }

    pub(crate) fn invalid(info: &ResourceInfo, name: &str, problem: &str) -> Self {
        let message = format!(
            "{} {name:?} is invalid: {problem}",
            qualified(info.kind, info.group)
        );
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message)
            .about(info.kind, info.group, name)
    }

    pub(crate) fn conflict(info: &ResourceInfo, name: &str, problem: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: {problem}",
            qualified(info.plural, info.group)
        );
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(info.plural, info.group, name)
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// The client requests a version that this server has not reached.
    pub(crate) fn too_large_version(requested: u64, current: u64) -> Self {
        let message =
            format!("Timeout: Too large resource version: {requested}, current: {current}");
        let mut error = Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message);
        error.details.insert(
            "causes".to_owned(),
            json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]),
        );
        error
            .details
            .insert("retryAfterSeconds".to_owned(), json!(1));
        error.retry_after = Some(1);
        error
    }

    pub(crate) fn too_many_requests(retry_after: u64) -> Self {
        let mut error = Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            "TooManyRequests",
            "Too many requests, please try again later.",
        );
        error
            .details
            .insert("retryAfterSeconds".to_owned(), json!(retry_after));
        error.retry_after = Some(retry_after);
        error
    }

    /// Converts a failed write.
    pub(crate) fn from_write(info: &ResourceInfo, error: WriteError) -> Self {
        let name = |key: String| key.rsplit('/').next().unwrap_or_default().to_owned();
        match error {
            WriteError::AlreadyExists { key, .. } => {
                let name = name(key);
                let message = format!(
                    "{} {name:?} already exists",
                    qualified(info.plural, info.group)
                );
                Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(
                    info.plural,
                    info.group,
                    &name,
                )
            }
            WriteError::NotFound { key, .. } => Self::not_found(info, &name(key)),
            WriteError::Conflict { key, .. } => Self::conflict(info, &name(key), MODIFIED),
            WriteError::Invalid { reason, .. } => Self::invalid(info, "", &reason),
        }
    }

    /// Sets the object that the error refers to.
    pub(crate) fn about(mut self, kind: &str, group: &str, name: &str) -> Self {
        for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                self.details.insert(key.to_owned(), json!(value));
            }
        }
        self
    }

    pub(crate) fn causes(mut self, causes: Value) -> Self {
        self.details.insert("causes".to_owned(), causes);
        self
    }

    #[cfg(test)]
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn to_value(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code.as_u16(),
        });
        if let Some(token) = &self.continue_token {
            status["metadata"] = json!({"continue": token});
        }
        if !self.details.is_empty()
            && let Some(status) = status.as_object_mut()
        {
            status.insert("details".to_owned(), Value::Object(self.details.clone()));
        }
        status
    }
}

/// Message of an update whose object has changed since it was read.
pub(crate) const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

impl From<Expired> for ApiError {
    fn from(expired: Expired) -> Self {
        Self::expired(format!(
            "too old resource version: {} ({})",
            expired.requested, expired.oldest
        ))
    }
}

/// `pods`, or `leases.coordination.k8s.io`.
pub(crate) fn qualified(name: &str, group: &str) -> String {
    if group.is_empty() {
        name.to_owned()
    } else {
        format!("{name}.{group}")
    }
}

/// The `Status` of a deletion that returns no object.
pub(crate) fn deleted(info: &ResourceInfo, name: &str, uid: &Value) -> Value {
    let mut details = Map::new();
    details.insert("name".to_owned(), json!(name));
    if !info.group.is_empty() {
        details.insert("group".to_owned(), json!(info.group));
    }
    details.insert("kind".to_owned(), json!(info.plural));
    details.insert("uid".to_owned(), uid.clone());
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
