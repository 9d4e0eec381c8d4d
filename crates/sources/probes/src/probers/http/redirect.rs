//! Redirects: where `Location` leads.

use http::response::Parts;
use http::{StatusCode, Uri, header};

use crate::Target;

/// Where a response redirects to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    To(Uri),
    /// Not a URL of HTTP.
    Invalid(String),
}

impl Redirect {
    /// Returns where a response redirects to; `None` if it does not.
    pub(super) fn of(head: &Parts, from: &Uri) -> Option<Self> {
        let is_redirect = matches!(
            head.status,
            StatusCode::MOVED_PERMANENTLY
                | StatusCode::FOUND
                | StatusCode::SEE_OTHER
                | StatusCode::TEMPORARY_REDIRECT
                | StatusCode::PERMANENT_REDIRECT
        );
        let location = head.headers.get(header::LOCATION).filter(|_| is_redirect)?;
        let location = String::from_utf8_lossy(location.as_bytes());
        let invalid = || Self::Invalid(location.chars().take(200).collect());
        Some(resolve(from, &location).map_or_else(invalid, Self::To))
    }
}

/// The host of a URL, an address of IPv6 without its brackets.
pub(super) fn host(url: &Uri) -> &str {
    let host = url.host().unwrap_or_default();
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    bare.unwrap_or(host)
}

/// The host and the port of a URL, without a user's name.
pub(super) fn authority(url: &Uri) -> String {
    let host = url.host().unwrap_or_default();
    match url.port_u16() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

/// Whether a probe of `target`, which is at `own`, may be redirected to a URL.
pub(super) fn is_allowed(url: &Uri, own: &Uri, target: &Target) -> bool {
    let Some(patterns) = &target.redirects else {
        return true;
    };
    let place = |url: &Uri| (host(url).to_ascii_lowercase(), port(url));
    let (to, port) = place(url);
    place(own) == (to.clone(), port) || patterns.iter().any(|one| one.matches(&to, port))
}

fn port(url: &Uri) -> u16 {
    let is_tls = url.scheme_str() == Some("https");
    url.port_u16().unwrap_or(if is_tls { 443 } else { 80 })
}

/// Resolves a reference by the rules of RFC 3986.
fn resolve(base: &Uri, reference: &str) -> Option<Uri> {
    let reference = reference.trim();
    let reference = reference.split('#').next().unwrap_or_default();
    let scheme = base.scheme_str()?;
    let origin = || format!("{scheme}://{}", authority(base));
    let text = if has_scheme(reference) {
        reference.to_owned()
    } else if reference.starts_with("//") {
        format!("{scheme}:{reference}")
    } else if reference.starts_with('/') {
        format!("{}{}", origin(), normalized(reference))
    } else if reference.is_empty() || reference.starts_with('?') {
        format!("{}{}{reference}", origin(), base.path())
    } else {
        let (folder, _) = base.path().rsplit_once('/').unwrap_or_default();
        format!(
            "{}{}",
            origin(),
            normalized(&format!("{folder}/{reference}"))
        )
    };
    let url: Uri = text.parse().ok()?;
    let is_http = matches!(url.scheme_str(), Some("http" | "https"));
    (is_http && !host(&url).is_empty()).then_some(url)
}

fn has_scheme(reference: &str) -> bool {
    let scheme = reference.split_once(':').map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    })
}

/// Removes `.` and `..` from a path.
fn normalized(path: &str) -> String {
    let (path, query) = path
        .split_once('?')
        .map_or((path, None), |(path, query)| (path, Some(query)));
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." if is_last => kept.push(""),
            "." => {}
            ".." => {
                kept.pop();
                if is_last {
                    kept.push("");
                }
            }
            other => kept.push(other),
        }
    }
    let mut text = format!("/{}", kept.join("/"));
    if let Some(query) = query {
        text.push('?');
        text.push_str(query);
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn references_are_resolved_as_in_rfc_3986() {
        let base: Uri = "http://h:81/b/c/d?q".parse().unwrap();
        for (reference, url) in [
            ("https://other/x", "https://other/x"),
            ("//other/x", "http://other/x"),
            ("/x?y", "http://h:81/x?y"),
            ("x", "http://h:81/b/c/x"),
            ("./x", "http://h:81/b/c/x"),
            ("../x", "http://h:81/b/x"),
            ("../../../x", "http://h:81/x"),
            ("..", "http://h:81/b/"),
            (".", "http://h:81/b/c/"),
            ("?y=/../z", "http://h:81/b/c/d?y=/../z"),
            ("x?y=../z", "http://h:81/b/c/x?y=../z"),
            ("#f", "http://h:81/b/c/d"),
            ("", "http://h:81/b/c/d"),
            (" /x ", "http://h:81/x"),
            ("a:b/c", ""),
            ("ftp://h/x", ""),
            ("javascript:alert(1)", ""),
            ("http://", ""),
            ("http:///x", ""),
        ] {
            let resolved = resolve(&base, reference).map(|url| url.to_string());
            assert_eq!(resolved.unwrap_or_default(), url, "{reference}");
        }
        let bare: Uri = "http://h".parse().unwrap();
        assert_eq!(resolve(&bare, "x").unwrap().to_string(), "http://h/x");
    }

    #[test]
    fn a_users_name_is_not_passed_on() {
        let base: Uri = "http://user:secret@h:81/".parse().unwrap();
        assert_eq!(resolve(&base, "/x").unwrap().to_string(), "http://h:81/x");
        assert_eq!(authority(&base), "h:81");
        let v6: Uri = "http://[::1]:81/".parse().unwrap();
        assert_eq!((host(&v6), authority(&v6).as_str()), ("::1", "[::1]:81"));
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn any_location_is_resolved_or_refused(location in ".{0,60}") {
            let base: Uri = "https://h/a/b".parse().unwrap();
            if let Some(url) = resolve(&base, &location) {
                prop_assert!(matches!(url.scheme_str(), Some("http" | "https")));
                prop_assert!(!host(&url).is_empty());
            }
        }
    }
}
