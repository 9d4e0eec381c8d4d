//! Errors as `metav1.Status`, in the representation that the client accepts.

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use serde::Serialize;

use crate::body::Body;
use crate::encode::{pretty_json, yaml};
use crate::negotiate::{MediaType, PROTOBUF};
use crate::request_info::{RequestInfo, Target};
use crate::resource::StatusError;
use crate::reviewer::{Attributes, UserInfo};
use crate::wire::envelope::put_envelope;
use crate::wire::meta::put_list_meta;
use crate::wire::protobuf::{put_int, put_message, put_str};

/// An error response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiStatus {
    pub(crate) code: StatusCode,
    reason: &'static str,
    message: String,
    details: Option<Box<Details>>,
    allow: Option<&'static str>,
}

/// The object of the error.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    kind: String,
    #[serde(skip_serializing_if = "is_zero")]
    retry_after_seconds: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusObject<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: Empty,
    status: &'static str,
    message: &'a str,
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a Details>,
    code: u16,
}

#[derive(Serialize)]
struct Empty {}

impl ApiStatus {
    pub(crate) fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
            allow: None,
        }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "ServiceUnavailable",
            message,
        )
        .retry_after(1)
    }

    pub(crate) fn too_many(message: impl Into<String>, seconds: u32) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message).retry_after(seconds)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    pub(crate) fn timeout() -> Self {
        let message = "request did not complete within the allotted timeout";
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message)
    }

    pub(crate) fn no_such_path() -> Self {
        let message = "the server could not find the requested resource";
        let mut status = Self::new(StatusCode::NOT_FOUND, "NotFound", message);
        status.details = Some(Box::default());
        status
    }

    pub(crate) fn method_not_allowed(allow: &'static str) -> Self {
        let message = "the server does not allow this method on the requested resource";
        let mut status = Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message);
        status.details = Some(Box::default());
        status.allow = Some(allow);
        status
    }

    pub(crate) fn not_watchable(group: &str, resource: &str) -> Self {
        let message = format!("watch is not supported on resources of kind \"{resource}.{group}\"");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
            .about("", group, resource)
    }

    /// None of the accepted media types is served.
    pub(crate) fn not_acceptable(served: &str) -> Self {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {served}");
        let mut status = Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message);
        status.details = Some(Box::default());
        status
    }

    /// A media type is served, but not with these parameters.
    pub(crate) fn only_accepted(served: &str) -> Self {
        let message = format!("only the following media types are accepted: {served}");
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    pub(crate) fn wrong_shape(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    pub(crate) fn forbidden(user: &UserInfo, attributes: &Attributes, reason: &str) -> Self {
        let mut text = match attributes {
            Attributes::Path { verb, path } => {
                format!(
                    "forbidden: User {:?} cannot {verb} path {path:?}",
                    user.name
                )
            }
            Attributes::Resource {
                verb,
                group,
                resource,
                subresource,
                namespace,
                name,
                ..
            } => {
                let mut text = resource.clone();
                if !group.is_empty() {
                    text = format!("{text}.{group}");
                }
                if !name.is_empty() {
                    text = format!("{text} {name:?}");
                }
                let mut what = resource.clone();
                if !subresource.is_empty() {
                    what = format!("{what}/{subresource}");
                }
                let scope = if namespace.is_empty() {
                    String::from("at the cluster scope")
                } else {
                    format!("in the namespace {namespace:?}")
                };
                format!(
                    "{text} is forbidden: User {:?} cannot {verb} resource {what:?} in API group {group:?} {scope}",
                    user.name
                )
            }
        };
        if !reason.is_empty() {
            text = format!("{text}: {reason}");
        }
        let status = Self::new(StatusCode::FORBIDDEN, "Forbidden", text);
        match attributes {
            Attributes::Path { .. } => status.about("", "", ""),
            Attributes::Resource {
                group,
                resource,
                name,
                ..
            } => status.about(name, group, resource),
        }
    }

    pub(crate) fn from_error(error: StatusError, info: &RequestInfo) -> Self {
        let (name, group, resource) = match &info.target {
            Target::Resource(target) => (&*target.name, &*target.group, &*target.resource),
            Target::Path => ("", "", ""),
        };
        match error {
            StatusError::NotFound { message } => {
                Self::new(StatusCode::NOT_FOUND, "NotFound", message).about(name, group, resource)
            }
            StatusError::BadRequest { message } => Self::bad_request(message),
            StatusError::Expired { message } => Self::new(StatusCode::GONE, "Expired", message),
            StatusError::TooManyRequests {
                message,
                retry_after_seconds,
            } => Self::too_many(message, retry_after_seconds),
            StatusError::Unavailable { message } => Self::unavailable(message),
        }
    }

    fn about(mut self, name: &str, group: &str, kind: &str) -> Self {
        let details = self.details.get_or_insert_default();
        name.clone_into(&mut details.name);
        group.clone_into(&mut details.group);
        kind.clone_into(&mut details.kind);
        self
    }

    fn retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = seconds.max(1);
        self
    }

    /// Returns the value of `Retry-After`.
    pub(crate) fn retry_after_seconds(&self) -> Option<u32> {
        let seconds = self.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then_some(seconds)
    }

    pub(crate) fn into_message(self) -> String {
        self.message
    }

    /// Encodes the response.
    pub(crate) fn into_response(self, media: MediaType, pretty: bool) -> Response<Body> {
        let body = self.encode(media, pretty);
        let mut response = Response::new(Body::full(body));
        *response.status_mut() = self.code;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media.content_type()));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        headers.insert(
            http::header::X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        );
        if let Some(allow) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        if let Some(seconds) = self.retry_after_seconds() {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }

    fn encode(&self, media: MediaType, pretty: bool) -> Bytes {
        if media == MediaType::Protobuf {
            return self.protobuf().into();
        }
        let mut json = serde_json::to_vec(&self.object()).unwrap_or_default();
        match media {
            MediaType::Yaml => yaml::from_json(&json).unwrap_or_default().into(),
            _ if pretty => pretty_json::whole(&json),
            _ => {
                json.push(b'\n');
                json.into()
            }
        }
    }

    fn object(&self) -> StatusObject<'_> {
        StatusObject {
            kind: "Status",
            api_version: "v1",
            metadata: Empty {},
            status: "Failure",
            message: &self.message,
            reason: self.reason,
            details: self.details.as_deref(),
            code: self.code.as_u16(),
        }
    }

    fn protobuf(&self) -> Vec<u8> {
        let mut message = Vec::new();
        put_list_meta(&mut message, 1, "");
        put_str(&mut message, 2, "Failure");
        put_str(&mut message, 3, &self.message);
        put_str(&mut message, 4, self.reason);
        if let Some(details) = &self.details {
            put_message(&mut message, 5, |out| {
                put_str(out, 1, &details.name);
                put_str(out, 2, &details.group);
                put_str(out, 3, &details.kind);
                put_int(out, 5, i64::from(details.retry_after_seconds));
                put_str(out, 6, "");
            });
        }
        put_int(&mut message, 6, i64::from(self.code.as_u16()));
        let mut out = Vec::with_capacity(message.len() + 32);
        put_envelope(&mut out, "v1", "Status", &message);
        out
    }
}

impl MediaType {
    /// For `Content-Type`.
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => PROTOBUF,
        }
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_zero(value: &u32) -> bool {
    *value == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes() -> Attributes {
        Attributes::Resource {
            verb: String::from("get"),
            group: String::from("metrics.k8s.io"),
            version: String::from("v1"),
            resource: String::from("pods"),
            subresource: String::new(),
            namespace: String::from("default"),
            name: String::from("x"),
            field_selector: Vec::new(),
            label_selector: Vec::new(),
        }
    }

    #[test]
    fn a_status_in_protobuf_is_what_go_sends() {
        let user = UserInfo {
            name: String::from("system:anonymous"),
            ..UserInfo::default()
        };
        let status = ApiStatus::forbidden(&user, &attributes(), "");
        let expected: &[u8] = b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Status\x12\xd2\x01\
            \x0a\x06\x0a\0\x12\0\x1a\0\x12\x07Failure\x1a\x91\x01pods.metrics.k8s.io \"x\" is forbidden: \
            User \"system:anonymous\" cannot get resource \"pods\" in API group \"metrics.k8s.io\" \
            in the namespace \"default\"\x22\x09Forbidden\x2a\x1d\x0a\x01x\x12\x0emetrics.k8s.io\x1a\x04pods\
            \x28\0\x32\0\x30\x93\x03\x1a\0\x22\0";
        assert_eq!(status.encode(MediaType::Protobuf, false), expected);
    }

    #[test]
    fn a_status_in_json_and_yaml_is_what_go_sends() {
        let status = ApiStatus::not_watchable("metrics.k8s.io", "nodes");
        insta::assert_snapshot!(
            String::from_utf8(status.encode(MediaType::Json, true).to_vec()).unwrap(), @r#"
        {
          "kind": "Status",
          "apiVersion": "v1",
          "metadata": {},
          "status": "Failure",
          "message": "watch is not supported on resources of kind \"nodes.metrics.k8s.io\"",
          "reason": "MethodNotAllowed",
          "details": {
            "group": "metrics.k8s.io",
            "kind": "nodes"
          },
          "code": 405
        }
        "#);
        insta::assert_snapshot!(
            String::from_utf8(status.encode(MediaType::Yaml, true).to_vec()).unwrap(), @r#"
        apiVersion: v1
        code: 405
        details:
          group: metrics.k8s.io
          kind: nodes
        kind: Status
        message: watch is not supported on resources of kind "nodes.metrics.k8s.io"
        metadata: {}
        reason: MethodNotAllowed
        status: Failure
        "#);
    }

    #[test]
    fn retry_after_and_allow_are_sent() {
        let response = ApiStatus::too_many("later", 3).into_response(MediaType::Json, false);
        assert_eq!(response.headers()[RETRY_AFTER], "3");
        let response = ApiStatus::method_not_allowed("GET").into_response(MediaType::Json, false);
        assert_eq!(response.headers()[ALLOW], "GET");
    }
}
