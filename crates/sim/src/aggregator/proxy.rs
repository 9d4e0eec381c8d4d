//! Proxying of requests, as kube-aggregator does it.

use http::header::{AUTHORIZATION, CONNECTION, HOST, HeaderName, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::Value;

use super::backend::{Backend, Connections};
use super::{Aggregator, RemoteService};
use crate::api::body::{self, ApiResponse, Body};
use crate::auth::User;

/// Size limit of a discovery response.
const MAX_DISCOVERY: usize = 4 * 1024 * 1024;

impl Aggregator {
    /// Proxies a request to the server of its group.
    pub(crate) async fn proxy(
        &self,
        service: &RemoteService,
        user: &User,
        request: Request<Incoming>,
    ) -> ApiResponse {
        let Some(backend) = service.backend.as_ref().filter(|_| service.is_available) else {
            return body::text(StatusCode::SERVICE_UNAVAILABLE, "service unavailable\n");
        };
        let (mut parts, content) = request.into_parts();
        if parts.headers.contains_key(UPGRADE) {
            return body::text(StatusCode::BAD_REQUEST, "upgrades are not proxied\n");
        }
        clean(&mut parts.headers);
        identify(&mut parts.headers, user);
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        match uri(backend, path) {
            Some(uri) => parts.uri = uri,
            None => return body::text(StatusCode::BAD_REQUEST, "the path cannot be passed on\n"),
        }
        // The connection to the backend may use another HTTP version than the client's.
        parts.version = http::Version::default();
        let request = Request::from_parts(parts, Body::Proxied(content));
        match self.connections.send(backend, request).await {
            Ok(response) => {
                let (mut parts, content) = response.into_parts();
                for name in [CONNECTION, TRANSFER_ENCODING] {
                    parts.headers.remove(name);
                }
                parts.version = http::Version::default();
                ApiResponse::from_parts(parts, Body::Proxied(content))
            }
            Err(problem) => body::text(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("error trying to reach service: {problem}\n"),
            ),
        }
    }
}

/// Fetches the resources that a server serves.
pub(super) async fn discover(
    connections: &Connections,
    backend: &Backend,
    path: &str,
) -> Result<Value, String> {
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = uri(backend, path).ok_or("invalid path")?;
    let prober = User::new("system:kube-aggregator", [crate::auth::MASTERS]);
    identify(request.headers_mut(), &prober);
    request.headers_mut().insert(
        http::header::ACCEPT,
        HeaderValue::from_static("application/json"),
    );
    let response = connections.send(backend, request).await?;
    if !response.status().is_success() {
        return Err(format!(
            "bad status from the server: {}",
            response.status().as_u16()
        ));
    }
    #[expect(clippy::disallowed_methods, reason = "the body is limited")]
    let body = Limited::new(response.into_body(), MAX_DISCOVERY)
        .collect()
        .await
        .map_err(|error| error.to_string())?
        .to_bytes();
    serde_json::from_slice(&body)
        .map_err(|error| format!("the list of resources is not JSON: {error}"))
}

fn uri(backend: &Backend, path: &str) -> Option<Uri> {
    format!("https://{}{path}", backend.host()).parse().ok()
}

/// Removes hop-by-hop headers, credentials, and headers that only a front proxy may set.
fn clean(headers: &mut HeaderMap) {
    let dropped: Vec<HeaderName> = headers
        .keys()
        .filter(|name| {
            let name = name.as_str();
            name.starts_with("x-remote-") || name.starts_with("impersonate-") || is_hop_by_hop(name)
        })
        .cloned()
        .collect();
    for name in dropped.into_iter().chain([AUTHORIZATION, HOST]) {
        headers.remove(name);
    }
}

fn is_hop_by_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "keep-alive"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
    )
}

fn identify(headers: &mut HeaderMap, user: &User) {
    let mut add = |name: &str, value: &str| {
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(value)) {
            headers.append(name, value);
        }
    };
    add("x-remote-user", &user.name);
    if !user.uid.is_empty() {
        add("x-remote-uid", &user.uid);
    }
    for group in &user.groups {
        add("x-remote-group", group);
    }
    for (key, values) in &user.extra {
        for value in values {
            add(&format!("x-remote-extra-{}", escape(key)), value);
        }
    }
}

/// Percent-encodes the key of an extra value, which may hold bytes that header names may not.
fn escape(key: &str) -> String {
    let mut name = String::new();
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.') {
            name.push(char::from(byte));
        } else {
            name.extend(['%', hex(byte >> 4), hex(byte & 15)]);
        }
    }
    name
}

fn hex(digit: u8) -> char {
    char::from_digit(u32::from(digit), 16)
        .unwrap_or('0')
        .to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_headers_of_clients_are_removed() {
        let mut headers: HeaderMap = [
            ("x-remote-user", "root"),
            ("x-remote-extra-scopes", "all"),
            ("authorization", "Bearer secret"),
            ("impersonate-user", "root"),
            ("connection", "keep-alive"),
            ("accept", "application/json"),
        ]
        .into_iter()
        .map(|(name, value)| {
            (
                name.parse::<HeaderName>().unwrap(),
                HeaderValue::from_static(value),
            )
        })
        .collect();
        clean(&mut headers);
        let mut user = User::new("ann", ["a", "b"]);
        user.extra
            .insert("example.org/x".to_owned(), vec!["1".to_owned()]);
        identify(&mut headers, &user);
        let mut all: Vec<(String, String)> = headers
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect();
        all.sort();
        let expected = [
            ("accept", "application/json"),
            ("x-remote-extra-example.org%2fx", "1"),
            ("x-remote-group", "a"),
            ("x-remote-group", "b"),
            ("x-remote-user", "ann"),
        ];
        assert_eq!(
            all,
            expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
    }
}
