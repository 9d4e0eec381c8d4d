//! Cookies of one run, for servers that set one and redirect.

use http::{HeaderMap, HeaderValue, Uri, header};

use super::redirect;

/// The cookies that were set in a run. Each goes back to the host that set it, and to no other,
/// whatever its domain.
#[derive(Debug, Default)]
pub(super) struct Cookies(Vec<Cookie>);

#[derive(Debug)]
struct Cookie {
    host: String,
    name: String,
    value: String,
    path: String,
    is_secure: bool,
}

/// Maximum number of cookies, and length of one.
const MAX_COOKIES: usize = 50;
const MAX_COOKIE: usize = 4096;

impl Cookies {
    /// Takes the cookies that a response sets.
    pub(super) fn take_from(&mut self, headers: &HeaderMap, url: &Uri) {
        let values = headers.get_all(header::SET_COOKIE).iter();
        let values = values.filter_map(|value| value.to_str().ok());
        for text in values.filter(|text| text.len() <= MAX_COOKIE) {
            self.set(text, redirect::host(url));
        }
    }

    fn set(&mut self, text: &str, host: &str) {
        let mut parts = text.split(';').map(str::trim);
        let Some((name, value)) = parts.next().and_then(|pair| pair.split_once('=')) else {
            return;
        };
        let mut cookie = Cookie {
            host: host.to_ascii_lowercase(),
            name: name.trim().to_owned(),
            value: value.trim().to_owned(),
            path: "/".to_owned(),
            is_secure: false,
        };
        let mut is_removed = false;
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            match key.trim().to_ascii_lowercase().as_str() {
                "secure" => cookie.is_secure = true,
                "path" if value.starts_with('/') => value.clone_into(&mut cookie.path),
                "max-age" => is_removed = value.trim().parse::<i64>().is_ok_and(|age| age <= 0),
                _ => {}
            }
        }
        self.0
            .retain(|known| (&known.host, &known.name) != (&cookie.host, &cookie.name));
        if !is_removed && !cookie.name.is_empty() && self.0.len() < MAX_COOKIES {
            self.0.push(cookie);
        }
    }

    /// Adds the cookies of a URL to a request.
    pub(super) fn add_to(&self, headers: &mut HeaderMap, url: &Uri) {
        let own = self.0.iter().filter(|cookie| cookie.is_for(url));
        let own: Vec<String> = own
            .map(|cookie| format!("{}={}", cookie.name, cookie.value))
            .collect();
        if own.is_empty() {
            return;
        }
        let mut all = own.join("; ");
        if let Some(configured) = headers
            .get(header::COOKIE)
            .and_then(|value| value.to_str().ok())
        {
            all = format!("{configured}; {all}");
        }
        if let Ok(value) = HeaderValue::try_from(all) {
            headers.insert(header::COOKIE, value);
        }
    }
}

impl Cookie {
    fn is_for(&self, url: &Uri) -> bool {
        let is_below = url
            .path()
            .strip_prefix(self.path.as_str())
            .is_some_and(|rest| {
                rest.is_empty() || rest.starts_with('/') || self.path.ends_with('/')
            });
        redirect::host(url).eq_ignore_ascii_case(&self.host)
            && is_below
            && (!self.is_secure || url.scheme_str() == Some("https"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sent(set: &[&str], url: &str) -> Option<String> {
        let mut cookies = Cookies::default();
        for text in set {
            cookies.set(text, "h.test");
        }
        let mut headers = HeaderMap::new();
        cookies.add_to(&mut headers, &url.parse().unwrap());
        let value = headers.get(header::COOKIE)?;
        Some(value.to_str().unwrap().to_owned())
    }

    #[test]
    fn cookies_go_back_to_their_host_and_path() {
        for (set, url, value) in [
            (
                &["a=1; Path=/; HttpOnly", "b=x=y"][..],
                "http://H.test/",
                Some("a=1; b=x=y"),
            ),
            (&["a=1", "a=2"], "http://h.test/", Some("a=2")),
            (&["a=1", "a=; Max-Age=0"], "http://h.test/", None),
            (&["a=1; Domain=test"], "http://other.test/", None),
            (&["a=1; Secure"], "http://h.test/", None),
            (&["a=1; secure"], "https://h.test/", Some("a=1")),
            (&["a=1; Path=/x"], "http://h.test/x/y", Some("a=1")),
            (&["a=1; Path=/x"], "http://h.test/xy", None),
            (&["nothing", "=1", ""], "http://h.test/", None),
        ] {
            assert_eq!(sent(set, url).as_deref(), value, "{set:?} {url}");
        }
    }

    #[test]
    fn cookies_are_bounded() {
        let mut cookies = Cookies::default();
        let mut headers = HeaderMap::new();
        for number in 0..200 {
            let value = HeaderValue::try_from(format!("n{number}=1")).unwrap();
            headers.append(header::SET_COOKIE, value);
        }
        let long = HeaderValue::try_from(format!("long={}", "x".repeat(MAX_COOKIE))).unwrap();
        headers.insert("set-cookie2", long.clone());
        cookies.take_from(&headers, &"http://h.test/".parse().unwrap());
        assert_eq!(cookies.0.len(), MAX_COOKIES);
        let mut cookies = Cookies::default();
        let headers = HeaderMap::from_iter([(header::SET_COOKIE, long)]);
        cookies.take_from(&headers, &"http://h.test/".parse().unwrap());
        assert!(cookies.0.is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn any_cookie_is_kept_or_ignored(text in "[ -~]{0,60}") {
            let _ = sent(&[&text], "http://h.test/");
        }
    }
}
