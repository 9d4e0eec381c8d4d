//! Request bodies as JSON trees.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::{Map, Value};

use super::protobuf;
use super::status::ApiError;

/// Size limit of a request body, as in kube-apiserver.
const MAX_BODY: usize = 3 * 1024 * 1024;
/// Accepted media types of objects.
const OBJECT_TYPES: &str =
    "application/json, application/yaml, application/vnd.kubernetes.protobuf";

pub(crate) struct Payload {
    /// In lower case, without parameters.
    pub(crate) media_type: String,
    pub(crate) bytes: Bytes,
}

impl Payload {
    pub(crate) async fn read(request: Request<Incoming>) -> Result<Self, ApiError> {
        let media_type = request
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.split(';').next())
            .unwrap_or_default()
            .trim()
            .to_lowercase();
        #[expect(clippy::disallowed_methods, reason = "the body is limited")]
        let collected = Limited::new(request.into_body(), MAX_BODY).collect().await;
        let bytes = collected
            .map_err(|error| {
                if error.is::<http_body_util::LengthLimitError>() {
                    ApiError::new(
                        StatusCode::PAYLOAD_TOO_LARGE,
                        "RequestEntityTooLarge",
                        format!("Request entity too large: limit is {MAX_BODY}"),
                    )
                } else {
                    ApiError::bad_request("the body of the request broke off")
                }
            })?
            .to_bytes();
        Ok(Self { media_type, bytes })
    }

    /// Decodes an object. Protobuf is supported for the few kinds that clients send in it.
    pub(crate) fn object(&self) -> Result<Map<String, Value>, ApiError> {
        let value = match self.media_type.as_str() {
            "" | "application/json" => serde_json::from_slice(&self.bytes).map_err(|error| {
                ApiError::bad_request(format!(
                    "couldn't get version/kind; json parse error: {error}"
                ))
            })?,
            "application/yaml" => yaml(&self.bytes)?,
            protobuf::MEDIA_TYPE => protobuf::decode(&self.bytes)?,
            _ => return Err(ApiError::unsupported_media_type(OBJECT_TYPES)),
        };
        match value {
            Value::Object(object) => Ok(object),
            _ => Err(ApiError::bad_request(
                "the object provided is not an object",
            )),
        }
    }
}

/// Parses YAML, which includes JSON.
pub(crate) fn yaml(bytes: &[u8]) -> Result<Value, ApiError> {
    let bad = |problem: String| ApiError::bad_request(format!("error decoding YAML: {problem}"));
    let text = std::str::from_utf8(bytes).map_err(|error| bad(error.to_string()))?;
    if let Ok(value) = serde_json::from_str(text) {
        return Ok(value);
    }
    serde_saphyr::from_str(text).map_err(|error| bad(error.to_string()))
}
