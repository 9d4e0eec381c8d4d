//! `http`: a request, its redirects, and what the response must be like.
//!
//! Refused by name, as they need libraries that are not in the tree: `fail_if_body_json_matches_cel`
//! and `fail_if_body_json_not_matches_cel`, `enable_http3`, `oauth2`, `proxy_url` and the other
//! settings of proxies, `compression: br`.

use http::{HeaderName, HeaderValue, Method, Version};
use regex::bytes::Regex;

use crate::{NetworkSettings, ProbeTls, Secret};

/// The settings of `http`.
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
    pub body_file: Option<std::path::PathBuf>,
    /// Maximum size of a body that is valid, after decompression; 0 for any. At most
    /// [`DEFAULT_BODY_LIMIT`](Self::DEFAULT_BODY_LIMIT) is kept to match against either way: of a
    /// larger body without a limit, the rest is read and not matched.
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
#[derive(Debug, Clone)]
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

impl HttpSettings {
    /// How much of a body is kept to match against.
    pub const DEFAULT_BODY_LIMIT: usize = 4 * 1024 * 1024;
}

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
