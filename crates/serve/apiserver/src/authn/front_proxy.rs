//! The front proxy, and the headers in which it identifies the user.

use std::borrow::Cow;
use std::collections::BTreeMap;

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue};
use kubevitals_http::query::percent_decode;
use kubevitals_tls::ClientAuthority;

use crate::config::RequestHeaders;
use crate::error::ApiServerError;
use crate::reviewer::UserInfo;
use crate::status::ApiStatus;

/// Maximum number of extra keys: the size of heads is bounded, their number is not. More are
/// refused, since an extra may restrict what a user is allowed to do.
const MAX_EXTRAS: usize = 64;
/// The default headers of Kubernetes; removed even where others are configured.
const DEFAULT_HEADERS: [&str; 3] = ["x-remote-user", "x-remote-uid", "x-remote-group"];
const DEFAULT_EXTRA_PREFIX: &str = "x-remote-extra-";

/// The authority and the headers of a front proxy.
#[derive(Debug, Clone)]
pub(crate) struct FrontProxy {
    pub(super) authority: ClientAuthority,
    pub(super) allowed_names: Vec<String>,
    username: Vec<HeaderName>,
    uid: Vec<HeaderName>,
    group: Vec<HeaderName>,
    /// In lower case, as all header names are here.
    extra_prefix: Vec<String>,
}

impl FrontProxy {
    pub(crate) fn new(
        authority: ClientAuthority,
        headers: &RequestHeaders,
    ) -> Result<Self, ApiServerError> {
        Ok(Self {
            authority,
            allowed_names: headers.allowed_names.clone(),
            username: names(&headers.username)?,
            uid: names(&headers.uid)?,
            group: names(&headers.group)?,
            extra_prefix: headers
                .extra_prefix
                .iter()
                .map(|prefix| prefix.trim().to_ascii_lowercase())
                .filter(|prefix| !prefix.is_empty())
                .collect(),
        })
    }

    /// Returns the user that the headers identify. Only the proxy may be believed.
    pub(crate) fn claim(&self, headers: &HeaderMap) -> Result<Option<UserInfo>, ApiStatus> {
        let first = |names: &[HeaderName]| {
            names
                .iter()
                .filter_map(|name| headers.get(name))
                .map(text)
                .find(|value| !value.is_empty())
        };
        let Some(name) = first(&self.username) else {
            return Ok(None);
        };
        let groups = self
            .group
            .iter()
            .flat_map(|name| headers.get_all(name))
            .map(text)
            .filter(|group| !group.is_empty())
            .collect();
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for prefix in &self.extra_prefix {
            for (name, value) in headers {
                let Some(key) = name.as_str().strip_prefix(prefix.as_str()) else {
                    continue;
                };
                extra.entry(unescaped(key)).or_default().push(text(value));
            }
        }
        if extra.len() > MAX_EXTRAS {
            return Err(ApiStatus::bad_request(format!(
                "the front proxy sent {} extra keys of a user, and at most {MAX_EXTRAS} are \
                 supported",
                extra.len()
            )));
        }
        Ok(Some(UserInfo {
            name,
            uid: first(&self.uid).unwrap_or_default(),
            groups,
            extra,
        }))
    }
}

/// Removes all headers that identify a user.
pub(super) fn strip(headers: &mut HeaderMap, proxy: Option<&FrontProxy>) {
    for name in DEFAULT_HEADERS {
        headers.remove(name);
    }
    let prefixes = || {
        let configured = proxy
            .map(|proxy| proxy.extra_prefix.as_slice())
            .unwrap_or_default();
        configured
            .iter()
            .map(String::as_str)
            .chain([DEFAULT_EXTRA_PREFIX])
    };
    let extras: Vec<HeaderName> = headers
        .keys()
        .filter(|name| prefixes().any(|prefix| name.as_str().starts_with(prefix)))
        .cloned()
        .collect();
    for name in extras {
        headers.remove(name);
    }
    if let Some(proxy) = proxy {
        for name in proxy.username.iter().chain(&proxy.uid).chain(&proxy.group) {
            headers.remove(name);
        }
    }
}

fn names(given: &[String]) -> Result<Vec<HeaderName>, ApiServerError> {
    given
        .iter()
        .map(|name| {
            HeaderName::try_from(name.trim())
                .map_err(|_| ApiServerError::HeaderName { name: name.clone() })
        })
        .collect()
}

fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

/// Keys of extras are percent-encoded, since headers allow few characters. A malformed one stays as
/// it is.
pub(crate) fn unescaped(key: &str) -> String {
    percent_decode(key).map_or_else(|| key.to_owned(), Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use kubevitals_tls::{PemSource, TrustRoots};

    use super::*;

    fn proxy(headers: &RequestHeaders) -> FrontProxy {
        let own = rcgen::generate_simple_self_signed([String::from("ca")]).unwrap();
        let source = PemSource::Inline {
            label: "test",
            pem: Arc::from(own.cert.pem().into_bytes()),
        };
        let roots = TrustRoots::load("test", vec![source], SystemTime::now()).unwrap();
        FrontProxy::new(ClientAuthority::new(&roots).unwrap(), headers).unwrap()
    }

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        list.iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            })
            .collect()
    }

    #[test]
    fn headers_are_parsed_as_in_go() {
        let claim = proxy(&RequestHeaders::default()).claim(&headers(&[
            ("x-remote-user", "ada"),
            ("x-remote-user", "eve"),
            ("x-remote-group", "a"),
            ("x-remote-group", "b"),
            ("x-remote-extra-scopes", "one"),
            ("x-remote-extra-scopes", "two"),
            ("x-remote-extra-acme.com%2fproject", "x"),
            ("x-remote-uid", "7"),
        ]));
        let claim = claim.unwrap().unwrap();
        assert_eq!(claim.name, "ada");
        assert_eq!(claim.groups, ["a", "b"]);
        assert_eq!(claim.extra["scopes"], ["one", "two"]);
        assert_eq!(claim.extra["acme.com/project"], ["x"]);
        assert_eq!(claim.uid, "", "not unless configured");
        assert_eq!(
            proxy(&RequestHeaders::default())
                .claim(&headers(&[("x-remote-group", "a")]))
                .unwrap(),
            None
        );
    }

    /// Extras above the maximum used to be dropped, and with them what they restricted.
    #[test]
    fn extras_are_all_kept_or_the_request_is_refused() {
        let mut all = headers(&[("x-remote-user", "ada")]);
        for number in 1..MAX_EXTRAS {
            let name = HeaderName::try_from(format!("x-remote-extra-{number}")).unwrap();
            all.append(name, HeaderValue::from_static("x"));
        }
        for value in ["1", "2"] {
            all.append("x-remote-extra-a%2fb", HeaderValue::from_static(value));
        }
        let proxy = proxy(&RequestHeaders::default());
        let extra = proxy.claim(&all).unwrap().unwrap().extra;
        assert_eq!(extra.len(), MAX_EXTRAS);
        assert_eq!(extra["a/b"], ["1", "2"]);
        all.append("x-remote-extra-late", HeaderValue::from_static("x"));
        assert_eq!(proxy.claim(&all).unwrap_err().code, 400);
    }

    #[test]
    fn similar_headers_are_ignored_and_all_are_removed() {
        let own = RequestHeaders {
            username: vec![String::from("X-My-User")],
            uid: vec![String::from("X-My-Uid")],
            extra_prefix: vec![String::from("X-My-Extra-")],
            ..RequestHeaders::default()
        };
        let proxy = proxy(&own);
        let mut all = headers(&[
            ("x_remote_user", "eve"),
            ("x-remote-user", "eve"),
            ("x-remote-uid", "1"),
            ("x-remote-extra-a", "1"),
            ("x-my-extra-b", "1"),
            ("x-my-uid", "1"),
            ("x-my-user", ""),
            ("accept", "*/*"),
        ]);
        assert_eq!(proxy.claim(&all).unwrap(), None);
        strip(&mut all, Some(&proxy));
        let mut left: Vec<&str> = all.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(
            left,
            ["accept", "x_remote_user"],
            "an underscore makes it another header, which is not read"
        );
    }

    #[test]
    fn invalid_header_names_are_rejected() {
        assert!(names(&[String::from("a b")]).is_err());
        assert!(names(&[String::new()]).is_err());
    }
}
