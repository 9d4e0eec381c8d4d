//! What programs ask an API server for, and what becomes a label of it.

use http::{Method, Uri};
use kube_client_metrics::{Call, Classifier};

/// What URLs are made of.
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

/// How many endpoints the oracle's classifier tells apart.
const LIMIT: usize = 8;

/// Lines with a URL each, as one program asks for them.
///
/// # Panics
///
/// If a text that may become a label is not made as a group, a version or a resource is, comes from
/// the place of a name, or if there are more of them than the limit allows.
pub fn client_request(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let classifier = Classifier::new("cluster").with_limit(LIMIT);
    let mut resources = std::collections::BTreeSet::new();
    for uri in text.lines().filter_map(|line| line.parse::<Uri>().ok()) {
        for method in [Method::GET, Method::DELETE, Method::OPTIONS] {
            let call = classifier.call(&method, &uri);
            check_texts(&call, &uri);
            check_places(&call, &uri);
            let again = classifier.call(&method, &uri);
            assert_eq!(call, again, "{uri}");
            resources.insert(call.endpoint.template().to_owned());
        }
    }
    // Those of fixed paths are not counted.
    assert!(resources.len() <= LIMIT + 14, "{resources:?}");
}

fn check_texts(call: &Call, uri: &Uri) {
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

/// No text is what stands in the place of a name or a namespace, unless it is also elsewhere in the
/// path.
fn check_places(call: &Call, uri: &Uri) {
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
