//! Classification of requests, and the labels derived from them.

use http::{Method, Uri};
use kube_client_metrics::{Call, Classifier};

/// Tokens of URLs.
pub(crate) const TOKENS: &[&[u8]] = &[
    b"/api/v1/",
    b"/apis/",
    b"apps/v1/",
    b"namespaces/",
    b"watch/",
    b"proxy/",
    b"pods",
    b"nodes",
    b"/status",
    b"/log",
    b"/exec",
    b"/proxy/",
    b"//",
    b"%2F",
    b"?watch=true",
    b"&follow=1",
    b"v1beta1",
    b"-",
    b".",
];

/// The limit on endpoints of the oracle's classifier.
const MAX_ENDPOINTS: usize = 8;

/// Classifies lines with a URL each.
///
/// # Panics
///
/// If a label value does not look like a group, a version or a resource, or comes from the position
/// of a name, or if there are more endpoints than the limit.
pub fn client_request(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let classifier = Classifier::new("cluster").with_limit(MAX_ENDPOINTS);
    let mut resources = std::collections::BTreeSet::new();
    for uri in text.lines().filter_map(|line| line.parse::<Uri>().ok()) {
        for method in [Method::GET, Method::DELETE, Method::OPTIONS] {
            let call = classifier.call(&method, &uri);
            check_values(&call, &uri);
            check_positions(&call, &uri);
            let again = classifier.call(&method, &uri);
            assert_eq!(call, again, "{uri}");
            resources.insert(call.endpoint.template().to_owned());
        }
    }
    // Endpoints of fixed paths do not count.
    assert!(resources.len() <= MAX_ENDPOINTS + 14, "{resources:?}");
}

fn check_values(call: &Call, uri: &Uri) {
    let endpoint = &call.endpoint;
    let is_name = |text: &str, extra: &str| {
        text.bytes().all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || extra.as_bytes().contains(&byte)
        })
    };
    assert!(
        is_name(endpoint.group(), "-.") && endpoint.group().len() <= 253,
        "{uri}"
    );
    assert!(
        is_name(endpoint.version(), "") && endpoint.version().len() <= 20,
        "{uri}"
    );
    assert!(
        is_name(endpoint.resource(), "-") && endpoint.resource().len() <= 63,
        "{uri}"
    );
    let known = ["", "other", "status", "log", "exec", "proxy"];
    let subresource = endpoint.subresource();
    assert!(
        known.contains(&subresource) || is_name(subresource, ""),
        "{uri}"
    );
    assert!(!endpoint.template().contains(['%', '?', '=']), "{uri}");
}

/// No value is that of a name or a namespace, unless it is also elsewhere in the path.
fn check_positions(call: &Call, uri: &Uri) {
    let path = uri.path().trim_matches('/');
    let parts: Vec<&str> = path.split('/').collect();
    let after_version = match parts.first() {
        Some(&"api") => 2,
        Some(&"apis") => 3,
        _ => return,
    };
    let mut rest = parts.get(after_version..).unwrap_or_default();
    if let [_, more @ ..] = rest
        && matches!(rest.first(), Some(&("watch" | "proxy")))
    {
        rest = more;
    }
    // The namespace and the name, or the name alone.
    let names: Vec<&str> = match rest {
        ["namespaces", namespace, "status" | "finalize", ..] | ["namespaces", namespace] => {
            vec![namespace]
        }
        ["namespaces", namespace, _, tail @ ..] => {
            let mut names = vec![*namespace];
            names.extend(tail.first());
            names.extend(tail.iter().skip(2));
            names
        }
        [_, name, tail @ ..] => {
            let mut names = vec![*name];
            names.extend(tail.iter().skip(1));
            names
        }
        _ => return,
    };
    let endpoint = &call.endpoint;
    for name in names {
        let elsewhere = parts.iter().filter(|part| **part == name).count() > 1;
        let fixed = ["", "other"].contains(&name) || name.contains('{');
        if elsewhere || fixed {
            continue;
        }
        for text in [
            endpoint.group(),
            endpoint.version(),
            endpoint.resource(),
            endpoint.subresource(),
        ] {
            assert_ne!(text, name, "{uri}: {call:?}");
        }
        let in_template = endpoint.template().split('/').any(|part| part == name);
        let placeholder = ["watch", "proxy", "namespaces", "api", "apis"].contains(&name);
        assert!(!in_template || placeholder, "{uri}: {call:?}");
    }
}
