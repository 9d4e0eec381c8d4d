//! Responses of the admin server.

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use http_body_util::Full;

pub(super) type Response = http::Response<Full<Bytes>>;

const PLAIN: &str = "text/plain; charset=utf-8";

/// Plain text, exactly as given.
pub(super) fn text(status: StatusCode, body: impl Into<Bytes>) -> Response {
    typed(status, PLAIN, body)
}

/// A line of plain text that describes an error.
pub(super) fn error(status: StatusCode, message: impl std::fmt::Display) -> Response {
    text(status, format!("{message}\n"))
}

/// The error for a method that the route does not support.
pub(super) fn method_not_allowed(allow: &'static str) -> Response {
    let message = format!("method not allowed, use {allow}");
    let mut response = error(StatusCode::METHOD_NOT_ALLOWED, message);
    response
        .headers_mut()
        .insert(header::ALLOW, HeaderValue::from_static(allow));
    response
}

/// A body of the given type.
pub(super) fn typed(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    // Bodies quote text of others: browsers must not render them as a page.
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
