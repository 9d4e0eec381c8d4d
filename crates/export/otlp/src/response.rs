//! Responses: what was rejected, what may be sent again, and when.
//!
//! Everything here comes from the receiver, so nothing is trusted: messages are cut, delays
//! limited.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use http::{HeaderMap, HeaderValue, StatusCode};
use kubevitals_http_client::parse_retry_after;
use kubevitals_protobuf::{Value, fields};
use kubevitals_sink::ExportError;
use percent_encoding::percent_decode_str;

/// A receiver that asks for no delay must not be asked without a pause.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(200);

/// A receiver may not stop the export for longer.
const MAX_RETRY_DELAY: Duration = Duration::from_mins(2);

/// Characters of a message that are repeated.
const MAX_MESSAGE: usize = 256;

/// A status of gRPC that is an error, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct GrpcCode(u32);

impl GrpcCode {
    const CANCELLED: Self = Self(1);
    const UNKNOWN: Self = Self(2);
    const DEADLINE_EXCEEDED: Self = Self(4);
    const PERMISSION_DENIED: Self = Self(7);
    const RESOURCE_EXHAUSTED: Self = Self(8);
    const ABORTED: Self = Self(10);
    const OUT_OF_RANGE: Self = Self(11);
    const UNIMPLEMENTED: Self = Self(12);
    const INTERNAL: Self = Self(13);
    const UNAVAILABLE: Self = Self(14);
    const DATA_LOSS: Self = Self(15);
    const UNAUTHENTICATED: Self = Self(16);

    /// The code of a response without one, by its HTTP status.
    fn of_http(status: StatusCode) -> Self {
        match status.as_u16() {
            400 => Self::INTERNAL,
            401 => Self::UNAUTHENTICATED,
            403 => Self::PERMISSION_DENIED,
            404 => Self::UNIMPLEMENTED,
            429 | 502 | 503 | 504 => Self::UNAVAILABLE,
            _ => Self::UNKNOWN,
        }
    }
}

/// Returns the failure of a response over HTTP that is not 200.
pub(crate) fn http_failure(
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    records: u64,
    now: SystemTime,
) -> ExportError {
    let detail = status_message(body);
    let message = with_detail(format!("the receiver answered {status}"), &detail);
    if !matches!(status.as_u16(), 429 | 502 | 503 | 504) {
        return ExportError::Rejected { message, records };
    }
    let after = headers
        .get(http::header::RETRY_AFTER)
        .and_then(|value| parse_retry_after(value.to_str().ok()?, now));
    ExportError::Retryable { message, after }
}

/// Returns the failure in the trailers of a gRPC response; `None` if it is a success.
pub fn grpc_failure(status: StatusCode, trailers: &HeaderMap, records: u64) -> Option<ExportError> {
    let code = trailers
        .get("grpc-status")
        .and_then(|code| code.to_str().ok()?.parse().ok());
    let code = match code {
        Some(0) => return None,
        Some(code) => GrpcCode(code),
        None => GrpcCode::of_http(status),
    };
    let detail = trailers.get("grpc-message").map(decoded);
    let message = with_detail(
        format!("the receiver answered with gRPC status {}", code.0),
        &detail.unwrap_or_default(),
    );
    let after = trailers.get("grpc-status-details-bin").and_then(retry_info);
    let is_retryable = match code {
        GrpcCode::CANCELLED
        | GrpcCode::DEADLINE_EXCEEDED
        | GrpcCode::ABORTED
        | GrpcCode::OUT_OF_RANGE
        | GrpcCode::UNAVAILABLE
        | GrpcCode::DATA_LOSS => true,
        // The receiver says when it will have room again, or it never will.
        GrpcCode::RESOURCE_EXHAUSTED => after.is_some(),
        _ => false,
    };
    Some(if is_retryable {
        ExportError::Retryable { message, after }
    } else {
        ExportError::Rejected { message, records }
    })
}

/// Returns the failure in the `Export…ServiceResponse` of a success: the records that the receiver
/// rejected, up to `records`.
pub fn rejected_by(response: &[u8], records: u64) -> Option<ExportError> {
    const PARTIAL_SUCCESS: u32 = 1;
    const REJECTED: u32 = 1;
    const MESSAGE: u32 = 2;
    let response = fields(response)?;
    let mut partial = response
        .iter()
        .filter(|field| field.number == PARTIAL_SUCCESS);
    let partial = fields(partial.next_back()?.value.bytes()?)?;
    let (mut rejected, mut message) = (0, "");
    for field in &partial {
        match (field.number, field.value) {
            (REJECTED, Value::Varint(number)) => rejected = number,
            (MESSAGE, value) => message = value.text().unwrap_or_default(),
            _ => {}
        }
    }
    // A message without rejected records is a warning.
    (rejected.cast_signed() > 0).then(|| ExportError::Rejected {
        message: with_detail("the receiver rejected a part".to_owned(), &cut(message)),
        records: rejected.min(records),
    })
}

/// The delay in the `RetryInfo` of a `google.rpc.Status`.
fn retry_info(details: &HeaderValue) -> Option<Duration> {
    const DETAILS: u32 = 3;
    const TYPE_URL: u32 = 1;
    const VALUE: u32 = 2;
    const RETRY_DELAY: u32 = 1;
    const SECONDS: u32 = 1;
    const NANOS: u32 = 2;
    let text = details.to_str().ok()?.trim_end_matches('=');
    let status = STANDARD_NO_PAD.decode(text).ok()?;
    let status = fields(&status)?;
    let mut details = status
        .iter()
        .filter(|field| field.number == DETAILS)
        .filter_map(|field| fields(field.value.bytes()?));
    let info = details.find_map(|any| {
        let of = |number| any.iter().find(|field| field.number == number);
        let name = of(TYPE_URL)?.value.text()?;
        name.ends_with("google.rpc.RetryInfo")
            .then(|| of(VALUE)?.value.bytes())?
    })?;
    let info = fields(info)?;
    let delay = info.iter().find(|field| field.number == RETRY_DELAY)?;
    let delay = fields(delay.value.bytes()?)?;
    let part = |number| {
        let field = delay.iter().find(|field| field.number == number);
        field.and_then(|field| field.value.int()).unwrap_or(0)
    };
    let seconds = u64::try_from(part(SECONDS)).ok()?;
    let nanos = u32::try_from(part(NANOS))
        .ok()
        .filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Duration::new(seconds, nanos).clamp(MIN_RETRY_DELAY, MAX_RETRY_DELAY))
}

/// The message of a `google.rpc.Status`, or the text of a body that is none.
fn status_message(body: &[u8]) -> String {
    const MESSAGE: u32 = 2;
    let status = fields(body).unwrap_or_default();
    let message = status.iter().find(|field| field.number == MESSAGE);
    match message.and_then(|field| field.value.text()) {
        Some(message) => cut(message),
        None => cut(&String::from_utf8_lossy(body)),
    }
}

fn decoded(value: &HeaderValue) -> String {
    let text = String::from_utf8_lossy(value.as_bytes());
    cut(&percent_decode_str(&text).decode_utf8_lossy())
}

fn with_detail(text: String, detail: &str) -> String {
    if detail.is_empty() {
        text
    } else {
        format!("{text}: {detail}")
    }
}

/// One line without control characters.
fn cut(text: &str) -> String {
    let text = text.trim().chars().take(MAX_MESSAGE);
    text.map(|char| if char.is_control() { ' ' } else { char })
        .collect()
}

#[cfg(test)]
mod tests;
