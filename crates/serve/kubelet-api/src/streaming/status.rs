//! How a session ended, as clients read it.

use bytes::Bytes;
use serde::Serialize;

use crate::error::ProviderError;
use crate::provider::ExitStatus;

/// How a session ended.
pub(super) type Outcome = Result<ExitStatus, ProviderError>;

/// The form of the status, by protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StatusFormat {
    /// Text of a failure, nothing on success: before v4.
    Text,
    /// A `metav1.Status`.
    Json,
}

#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "the names of metav1.Status")]
struct Status {
    metadata: Empty,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u16>,
}

#[derive(Serialize)]
struct Empty {}

#[derive(Serialize)]
struct Details {
    causes: [Cause; 1],
}

#[derive(Serialize)]
struct Cause {
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    message: String,
}

/// Encodes how a session ended. Clients take the exit code from the cause.
pub(super) fn encode(outcome: &Outcome, format: StatusFormat) -> Bytes {
    let (message, reason, cause, code) = match outcome {
        Ok(ExitStatus { code: 0 }) => {
            return match format {
                StatusFormat::Text => Bytes::new(),
                StatusFormat::Json => Bytes::from_static(br#"{"metadata":{},"status":"Success"}"#),
            };
        }
        Ok(ExitStatus { code }) => (
            format!("command terminated with non-zero exit code: {code}"),
            "NonZeroExitCode",
            Cause {
                reason: Some("ExitCode"),
                message: code.to_string(),
            },
            None,
        ),
        Err(error) => (
            format!("Internal error occurred: {error}"),
            "InternalError",
            Cause {
                reason: None,
                message: error.to_string(),
            },
            Some(500),
        ),
    };
    if format == StatusFormat::Text {
        return Bytes::from(message);
    }
    failure(message, reason, Some(cause), code)
}

/// A `metav1.Status` of an HTTP response.
pub(super) fn response_body(message: &str, reason: &'static str, code: u16) -> Bytes {
    failure(message.to_owned(), reason, None, Some(code))
}

fn failure(
    message: String,
    reason: &'static str,
    cause: Option<Cause>,
    code: Option<u16>,
) -> Bytes {
    let status = Status {
        metadata: Empty {},
        status: "Failure",
        message: Some(message),
        reason: Some(reason),
        details: cause.map(|cause| Details { causes: [cause] }),
        code,
    };
    // Strings and numbers always have a form in JSON.
    serde_json::to_vec(&status).map_or_else(|_| Bytes::new(), Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(outcome: &Outcome, format: StatusFormat) -> String {
        String::from_utf8(encode(outcome, format).to_vec()).unwrap()
    }

    #[test]
    fn exit_codes_are_causes() {
        let exit = |code| Ok(ExitStatus { code });
        assert_eq!(
            text(&exit(0), StatusFormat::Json),
            r#"{"metadata":{},"status":"Success"}"#
        );
        assert_eq!(
            text(&exit(137), StatusFormat::Json),
            r#"{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code: 137","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"137"}]}}"#
        );
        let failed = Err(ProviderError::Internal("no \"sh\"".to_owned()));
        assert_eq!(
            text(&failed, StatusFormat::Json),
            r#"{"metadata":{},"status":"Failure","message":"Internal error occurred: no \"sh\"","reason":"InternalError","details":{"causes":[{"message":"no \"sh\""}]},"code":500}"#
        );
    }

    #[test]
    fn old_protocols_have_text() {
        assert_eq!(text(&Ok(ExitStatus { code: 0 }), StatusFormat::Text), "");
        assert_eq!(
            text(&Ok(ExitStatus { code: 7 }), StatusFormat::Text),
            "command terminated with non-zero exit code: 7"
        );
    }
}
