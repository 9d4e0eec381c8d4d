//! Answers of the admin server.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;

/// An answer whose body is known whole.
pub(super) type Answer = Response<Full<Bytes>>;

const PLAIN: &str = "text/plain; charset=utf-8";

/// Plain text, exactly as given.
pub(super) fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    typed(status, PLAIN, body)
}

/// A line of plain text that says what is wrong.
pub(super) fn refusal(status: StatusCode, message: impl std::fmt::Display) -> Answer {
    text(status, format!("{message}\n"))
}

/// The method does not fit the route, and which do.
pub(super) fn method_not_allowed(allow: &'static str) -> Answer {
    let message = format!("method not allowed, use {allow}");
    let mut answer = refusal(StatusCode::METHOD_NOT_ALLOWED, message);
    answer
        .headers_mut()
        .insert(header::ALLOW, HeaderValue::from_static(allow));
    answer
}

/// A body of the given type.
pub(super) fn typed(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    // Bodies quote what others wrote: no browser shall take them for a page.
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}
