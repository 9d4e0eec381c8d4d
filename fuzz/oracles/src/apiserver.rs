//! Requests to the API server before authentication.

use http::{Method, Uri};
use kubevitals_apiserver::{RequestInfo, Target};
use kubevitals_http::accept;

/// Tokens of requests.
pub(crate) const REQUEST_TOKENS: &[&[u8]] = &[
    b"/apis/",
    b"/namespaces/",
    b"pods",
    b"status",
    b"%2F",
    b"%",
    b"//",
    b"?",
    b"watch=1",
    b"&fieldSelector=metadata.name%3D",
    b"\\,",
    b"\n",
    b"application/json",
    b"application/*",
    b"*/*",
    b";as=Table;v=v1;g=meta.k8s.io",
    b";q=0.5",
    b";stream=watch",
    b",",
    b"=",
];

/// Parses a line with a path and a query, and a line with an `Accept` header.
///
/// # Panics
///
/// If a resource is parsed from a path without one, or a range of the header is malformed.
pub fn api_request(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (uri, accept) = text.split_once('\n').unwrap_or((text, ""));
    for range in accept::parse(accept) {
        assert!(!range.subtype.is_empty() && !range.subtype.contains('/'));
        assert!(range.weight().is_none_or(|weight| weight <= 1000));
    }
    let Ok(uri) = uri.parse::<Uri>() else {
        return;
    };
    for method in [Method::GET, Method::DELETE, Method::OPTIONS] {
        let Ok(info) = RequestInfo::parse(&method, &uri) else {
            continue;
        };
        match &info.target {
            Target::Path => assert_eq!(info.verb, method.as_str().to_ascii_lowercase()),
            Target::Resource(target) => {
                assert!(target.parts > 0 && info.path.trim_matches('/').starts_with("apis/"));
                for text in [
                    &target.group,
                    &target.version,
                    &target.resource,
                    &target.subresource,
                ] {
                    assert!(!text.contains('/'), "{info:?}");
                }
                // One object has the verb `get`, a collection has not: RBAC rules rely on it.
                if method == Method::GET && target.parts <= 2 {
                    assert_eq!(info.verb == "get", target.parts == 2, "{info:?}");
                }
            }
        }
        let _ = info.attributes();
    }
}
