//! `http`: a request, its redirects, and what the response must be like.
//!
//! Refused by name, as they need libraries that are not in the tree:
//! `fail_if_body_json_matches_cel` and `fail_if_body_json_not_matches_cel`, `enable_http3`,
//! `oauth2`, `proxy_url` and the other settings of proxies, `compression: br`.

mod body;
mod connection;
mod cookies;
mod credentials;
mod redirect;

use std::fmt;
use std::path::PathBuf;

use bytes::Bytes;
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version, header};
use kubevitals_model::Timestamp;
use regex::bytes::Regex;

use crate::run::Run;
use crate::target::Place;
use crate::{Failure, NetworkSettings, ProbeTls, Reason, Secret, Target};

use connection::Request;
use cookies::Cookies;
use credentials::Credentials;
use redirect::Redirect;

/// The settings of `http`.
#[expect(
    clippy::struct_excessive_bools,
    reason = "the settings of `blackbox_exporter`, as they are"
)]
#[derive(Debug, Clone)]
pub struct HttpSettings {
    /// Empty for all of 2xx.
    pub valid_status_codes: Vec<u16>,
    /// Empty for all.
    pub valid_http_versions: Vec<Version>,
    pub method: Method,
    /// `headers`, and `http_headers` with values, secrets and files. `Host` replaces the name of
    /// the target.
    pub headers: Vec<HeaderSetting>,
    pub body: Option<Vec<u8>>,
    pub body_file: Option<PathBuf>,
    /// Maximum size of a body, after decompression: a larger one is a failure. With 0 the size does
    /// not matter, and at most [`DEFAULT_BODY_LIMIT`](Self::DEFAULT_BODY_LIMIT) is read. If regular
    /// expressions would need the rest, that is a failure too.
    pub body_size_limit: u64,
    pub compression: Option<Compression>,
    pub follow_redirects: bool,
    pub fail_if_ssl: bool,
    pub fail_if_not_ssl: bool,
    pub fail_if_body_matches_regexp: Vec<Regex>,
    pub fail_if_body_not_matches_regexp: Vec<Regex>,
    pub fail_if_header_matches: Vec<HeaderMatch>,
    pub fail_if_header_not_matches: Vec<HeaderMatch>,
    pub tls_config: ProbeTls,
    pub basic_auth: Option<BasicAuth>,
    /// `authorization`: the type, such as `Bearer`, and the credentials.
    pub authorization: Option<(String, Secret)>,
    pub enable_http2: bool,
    pub network: NetworkSettings,
}

/// A header of the request.
#[derive(Clone)]
pub enum HeaderSetting {
    Value(HeaderName, HeaderValue),
    Secret(HeaderName, Secret),
}

/// A header of the response that must match, or must not.
#[derive(Debug, Clone)]
pub struct HeaderMatch {
    pub header: HeaderName,
    pub regexp: Regex,
    /// Whether a response without the header is valid.
    pub allow_missing: bool,
}

/// How the body is expected to be compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    Gzip,
    Deflate,
    Identity,
}

/// `basic_auth`.
#[derive(Debug, Clone)]
pub struct BasicAuth {
    pub username: Secret,
    pub password: Option<Secret>,
}

/// How the prober names itself.
pub(crate) const USER_AGENT: &str = concat!("kubevitals-prober/", env!("CARGO_PKG_VERSION"));

/// Maximum number of redirects that are followed.
const MAX_REDIRECTS: u32 = 10;

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            valid_status_codes: Vec::new(),
            valid_http_versions: Vec::new(),
            method: Method::GET,
            headers: Vec::new(),
            body: None,
            body_file: None,
            body_size_limit: 0,
            compression: None,
            follow_redirects: true,
            fail_if_ssl: false,
            fail_if_not_ssl: false,
            fail_if_body_matches_regexp: Vec::new(),
            fail_if_body_not_matches_regexp: Vec::new(),
            fail_if_header_matches: Vec::new(),
            fail_if_header_not_matches: Vec::new(),
            tls_config: ProbeTls::default(),
            basic_auth: None,
            authorization: None,
            enable_http2: true,
            network: NetworkSettings::default(),
        }
    }
}

impl HttpSettings {
    /// How much of a body is read if there is no other limit.
    pub const DEFAULT_BODY_LIMIT: u64 = 4 * 1024 * 1024;
    /// How much of a body is kept to match against, whatever the limit.
    pub const MAX_MATCHED_BODY: u64 = 16 * 1024 * 1024;

    pub(crate) async fn run(&self, run: &mut Run<'_>, target: &Target) -> Result<(), Failure> {
        let Place::Url(url) = &target.place else {
            let message = "the target was parsed for another prober";
            return Err(run.fail(Reason::Internal, message));
        };
        let hostname = target.hostname.as_deref();
        if hostname.is_some_and(|name| HeaderValue::try_from(name).is_err()) {
            let message = "the hostname cannot be the value of a header";
            return Err(run.fail(Reason::Internal, message));
        }
        let credentials = Credentials::read(self, run).await?;
        let body = self.request_body(run).await?;
        let mut request = Request {
            url: url.clone(),
            method: self.method.clone(),
            body,
            is_trusted: true,
        };
        let mut cookies = Cookies::default();
        let mut redirects = 0;
        run.facts.http_redirects = Some(redirects);
        loop {
            let mut headers = self.request_headers(target, &request, &credentials);
            cookies.add_to(&mut headers, &request.url);
            let name = self.server_name(target, &headers, &request, url);
            let exchange = self.exchange(run, &request, headers, &name).await?;
            Self::learn(run, &exchange.head, request.is_tls());
            cookies.take_from(&exchange.head.headers, &request.url);
            let next = match Redirect::of(&exchange.head, &request.url) {
                Some(redirect) if self.follow_redirects => redirect,
                _ => {
                    self.judge_head(run, &exchange.head, request.is_tls())?;
                    return self.judge_body(run, exchange).await;
                }
            };
            redirects += 1;
            if redirects > MAX_REDIRECTS {
                let message = format!("more than {MAX_REDIRECTS} redirects");
                return Err(run.fail(Reason::HttpRedirects, message));
            }
            run.facts.http_redirects = Some(redirects);
            request = match next {
                Redirect::To(next) if !redirect::is_allowed(&next, url, target) => {
                    let to = redirect::authority(&next);
                    let message = format!("a redirect to {to} leads to no allowed target");
                    return Err(run.fail(Reason::NotAllowed, message));
                }
                Redirect::To(next) => request.redirected(next, url, exchange.head.status),
                Redirect::Invalid(location) => {
                    let message = format!("a redirect to {location:?} cannot be followed");
                    return Err(run.fail(Reason::HttpRedirects, message));
                }
            };
        }
    }

    async fn request_body(&self, run: &Run<'_>) -> Result<Bytes, Failure> {
        match (&self.body, &self.body_file) {
            (Some(body), _) => Ok(body.clone().into()),
            (None, Some(path)) => {
                let limit = Self::DEFAULT_BODY_LIMIT;
                let body = crate::settings::read_file(path.clone(), limit).await;
                body.map(Bytes::from).map_err(|error| {
                    let message = format!("body_file cannot be read: {error}");
                    run.fail(Reason::Internal, message)
                })
            }
            (None, None) => Ok(Bytes::new()),
        }
    }

    /// The headers of the configuration, and those that follow from it.
    fn request_headers(
        &self,
        target: &Target,
        request: &Request,
        credentials: &Credentials,
    ) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for setting in &self.headers {
            if let HeaderSetting::Value(name, value) = setting {
                let is_private = [header::AUTHORIZATION, header::COOKIE, header::HOST];
                if request.is_trusted || !is_private.contains(name) {
                    headers.append(name, value.clone());
                }
            }
        }
        if request.is_trusted {
            if let Some(hostname) = &target.hostname
                && let Ok(value) = HeaderValue::try_from(&**hostname)
            {
                headers.insert(header::HOST, value);
            }
            credentials.add_to(&mut headers);
        }
        let fixed = HeaderValue::from_static;
        headers
            .entry(header::USER_AGENT)
            .or_insert(fixed(USER_AGENT));
        if let Some(compression) = self.compression {
            let value = fixed(compression.name());
            headers.entry(header::ACCEPT_ENCODING).or_insert(value);
        }
        headers
    }

    /// The name that the certificate must be for. That of the settings, and the one in `Host`, are
    /// for the target itself and not for where it redirects to.
    fn server_name(
        &self,
        target: &Target,
        headers: &HeaderMap,
        request: &Request,
        first: &Uri,
    ) -> String {
        let host = request.host();
        if redirect::host(first) != host {
            return host.to_owned();
        }
        if let Some(name) = &self.tls_config.settings().server_name {
            return name.clone();
        }
        if let Some(hostname) = &target.hostname {
            return hostname.to_string();
        }
        let named = headers
            .get(header::HOST)
            .and_then(|value| value.to_str().ok());
        let named = named.and_then(|value| value.parse::<Uri>().ok());
        let named = named.as_ref().map(redirect::host);
        named
            .filter(|name| !name.is_empty())
            .unwrap_or(host)
            .to_owned()
    }

    fn learn(run: &mut Run<'_>, head: &Parts, is_tls: bool) {
        let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok());
        run.facts.http_status = Some(head.status.as_u16());
        run.facts.http_version = Some(head.version);
        run.facts.http_ssl = Some(is_tls);
        run.facts.http_content_length =
            text(header::CONTENT_LENGTH).and_then(|value| value.parse().ok());
        run.facts.http_last_modified = text(header::LAST_MODIFIED)
            .and_then(|value| httpdate::parse_http_date(value).ok())
            .map(Timestamp::from_system_time);
    }

    fn judge_head(&self, run: &Run<'_>, head: &Parts, is_tls: bool) -> Result<(), Failure> {
        let status = head.status;
        let is_valid = if self.valid_status_codes.is_empty() {
            status.is_success()
        } else {
            self.valid_status_codes.contains(&status.as_u16())
        };
        if !is_valid {
            let message = format!("the status {} is not valid", status.as_u16());
            return Err(run.fail(Reason::HttpStatus, message));
        }
        let versions = &self.valid_http_versions;
        if !versions.is_empty() && !versions.contains(&head.version) {
            let message = format!("{:?} is not valid", head.version);
            return Err(run.fail(Reason::HttpVersion, message));
        }
        if is_tls && self.fail_if_ssl {
            return Err(run.fail(Reason::HttpVersion, "the response came over TLS"));
        }
        if !is_tls && self.fail_if_not_ssl {
            return Err(run.fail(Reason::HttpVersion, "the response came without TLS"));
        }
        self.header_problem(&head.headers)
            .map_or(Ok(()), |problem| {
                Err(run.fail(Reason::HeaderMismatch, problem))
            })
    }

    fn header_problem(&self, headers: &HeaderMap) -> Option<String> {
        let is_missing =
            |rule: &&HeaderMatch| !rule.allow_missing && !headers.contains_key(&rule.header);
        let matches = |rule: &HeaderMatch| {
            let mut values = headers.get_all(&rule.header).iter();
            values.any(|value| rule.regexp.is_match(value.as_bytes()))
        };
        let all = self.fail_if_header_matches.iter();
        let mut all = all.chain(&self.fail_if_header_not_matches);
        if let Some(rule) = all.find(is_missing) {
            return Some(format!("there is no header {}", rule.header));
        }
        let mut forbidden = self.fail_if_header_matches.iter();
        if let Some(rule) = forbidden.find(|rule| matches(rule)) {
            return Some(format!(
                "the header {} matches {:?}",
                rule.header,
                rule.regexp.as_str()
            ));
        }
        let mut wanted = self.fail_if_header_not_matches.iter();
        let rule = wanted.find(|rule| headers.contains_key(&rule.header) && !matches(rule))?;
        let (name, regexp) = (&rule.header, rule.regexp.as_str());
        Some(format!("the header {name} does not match {regexp:?}"))
    }
}

impl fmt::Debug for HeaderSetting {
    /// Values are left out: some are credentials, whether they were declared as secrets or not.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = match self {
            Self::Value(name, _) => ("Value", name),
            Self::Secret(name, _) => ("Secret", name),
        };
        f.debug_tuple(kind).field(name).finish_non_exhaustive()
    }
}

impl Compression {
    /// The name in `Accept-Encoding` and `Content-Encoding`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Identity => "identity",
        }
    }
}
