//! Settings: flags before `OTEL_EXPORTER_OTLP_*`, and of these the variable of a signal before the
//! general one, as the specification of OpenTelemetry says.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use kubevitals_http_client::IdentityFiles;
use percent_encoding::percent_decode_str;
use thiserror::Error;

use crate::client::Signal;

/// Time within which a request must succeed; the default of the specification.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// A longer timeout would delay a shutdown.
const MAX_TIMEOUT: Duration = Duration::from_mins(5);

/// Maximum number of headers.
const MAX_HEADERS: usize = 64;

/// Where and how to send.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The URL of requests over HTTP; for gRPC its path is the method.
    pub url: Uri,
    pub protocol: Protocol,
    pub compression: Compression,
    pub headers: Headers,
    /// A file with further headers, read again before each request; one `Name: value` a line.
    pub headers_file: Option<PathBuf>,
    /// The authorities of the receiver's certificate; `None` for those of the system.
    pub certificate: Option<PathBuf>,
    pub identity: Option<IdentityFiles>,
    pub timeout: Duration,
}

/// The flags that settings are read from; `None` where a flag is not given.
#[derive(Debug, Clone, Default)]
pub struct SettingsSource {
    /// As `OTEL_EXPORTER_OTLP_ENDPOINT`: the base of the URL.
    pub endpoint: Option<String>,
    pub protocol: Option<Protocol>,
    pub compression: Option<Compression>,
    pub headers_file: Option<PathBuf>,
    pub certificate: Option<PathBuf>,
}

/// The transport of OTLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// Protobuf over HTTP/1.1.
    #[default]
    HttpProtobuf,
    Grpc,
}

/// The compression of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    #[default]
    Gzip,
    None,
}

/// Headers of requests, often with a token. Their values are not printed.
#[derive(Clone, Default, PartialEq)]
pub struct Headers(HeaderMap);

/// A setting that cannot be used. Values of headers are not repeated.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{name}: {problem}; {advice}")]
pub struct SettingsError {
    /// The flag without dashes, or the variable.
    pub name: String,
    pub problem: String,
    pub advice: &'static str,
}

impl Settings {
    /// Reads the settings of a signal from flags and from the variables that `get` returns; `None`
    /// if no endpoint is named.
    pub fn read(
        signal: Signal,
        flags: &SettingsSource,
        get: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, SettingsError> {
        let variables = Variables { signal, get };
        let is_disabled = variables
            .get("OTEL_SDK_DISABLED")
            .is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || variables.get(signal.exporter_variable).as_deref() == Some("none");
        if is_disabled && flags.endpoint.is_none() {
            return Ok(None);
        }
        let protocol = match (flags.protocol, variables.of_signal("PROTOCOL")) {
            (Some(given), _) => given,
            (None, Some((name, text))) => text.parse().map_err(|problem| SettingsError {
                name,
                problem,
                advice: "use grpc or http/protobuf",
            })?,
            (None, None) => Protocol::default(),
        };
        let Some(url) = variables.url(flags.endpoint.as_deref(), protocol)? else {
            return Ok(None);
        };
        let compression = match (flags.compression, variables.of_signal("COMPRESSION")) {
            (Some(given), _) => given,
            (None, Some((name, text))) => text.parse().map_err(|problem| SettingsError {
                name,
                problem,
                advice: "use gzip or none",
            })?,
            (None, None) => Compression::default(),
        };
        let headers = match variables.of_signal("HEADERS") {
            Some((name, text)) => Headers::parse(&text).map_err(|problem| SettingsError {
                name,
                problem,
                advice: "write NAME=VALUE,NAME=VALUE with values in percent-encoding",
            })?,
            None => Headers::default(),
        };
        let timeout = variables.timeout()?;
        let path = |name| Some(PathBuf::from(variables.of_signal(name)?.1));
        let identity = path("CLIENT_CERTIFICATE").zip(path("CLIENT_KEY"));
        Ok(Some(Self {
            url,
            protocol,
            compression,
            headers,
            headers_file: flags.headers_file.clone(),
            certificate: flags.certificate.clone().or_else(|| path("CERTIFICATE")),
            identity: identity.map(|(certificate, key)| IdentityFiles { certificate, key }),
            timeout,
        }))
    }

    /// Whether requests are encrypted.
    pub fn is_tls(&self) -> bool {
        self.url.scheme_str() == Some("https")
    }

    /// The host of the receiver, without brackets.
    pub fn host(&self) -> &str {
        self.url.host().unwrap_or_default().trim_matches(['[', ']'])
    }

    pub fn port(&self) -> u16 {
        let default = if self.is_tls() { 443 } else { 80 };
        self.url.port_u16().unwrap_or(default)
    }
}

/// The variables of one signal.
struct Variables<G> {
    signal: Signal,
    get: G,
}

impl<G: Fn(&str) -> Option<String>> Variables<G> {
    /// As the specification says, an empty variable is as one that is not set.
    fn get(&self, name: &str) -> Option<String> {
        (self.get)(name).filter(|value| !value.is_empty())
    }

    fn named(&self, name: String) -> Option<(String, String)> {
        let value = self.get(&name)?;
        Some((name, value))
    }

    /// The variable of the signal, or else the general one, with its name.
    fn of_signal(&self, name: &str) -> Option<(String, String)> {
        self.named(format!(
            "OTEL_EXPORTER_OTLP_{}_{name}",
            self.signal.variable
        ))
        .or_else(|| self.named(format!("OTEL_EXPORTER_OTLP_{name}")))
    }

    fn url(&self, flag: Option<&str>, protocol: Protocol) -> Result<Option<Uri>, SettingsError> {
        let of_signal = format!("OTEL_EXPORTER_OTLP_{}_ENDPOINT", self.signal.variable);
        let (name, text, is_base) = if let Some(text) = flag {
            ("otlp-endpoint".to_owned(), text.to_owned(), true)
        } else if let Some((name, text)) = self.named(of_signal) {
            (name, text, false)
        } else if let Some((name, text)) = self.named("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned()) {
            (name, text, true)
        } else {
            return Ok(None);
        };
        let path = match protocol {
            Protocol::Grpc => PathRule::Method(self.signal.method),
            Protocol::HttpProtobuf if is_base => PathRule::Append(self.signal.path),
            Protocol::HttpProtobuf => PathRule::Keep,
        };
        parse_url(&text, path)
            .map(Some)
            .map_err(|problem| SettingsError {
                name,
                problem: problem.to_owned(),
                advice: "write http://HOST:4318, or https://; for gRPC the port is often 4317",
            })
    }

    fn timeout(&self) -> Result<Duration, SettingsError> {
        let Some((name, text)) = self.of_signal("TIMEOUT") else {
            return Ok(DEFAULT_TIMEOUT);
        };
        let millis: Option<u64> = text.parse().ok();
        let timeout = millis.map(Duration::from_millis);
        timeout
            .filter(|timeout| !timeout.is_zero() && *timeout <= MAX_TIMEOUT)
            .ok_or_else(|| SettingsError {
                name,
                problem: "it is no number from 1 to 300000".to_owned(),
                advice: "write milliseconds, such as 10000",
            })
    }
}

/// The path of the requests.
#[derive(Clone, Copy)]
enum PathRule {
    Append(&'static str),
    Keep,
    Method(&'static str),
}

/// The problem does not repeat the URL, which may have a password.
fn parse_url(text: &str, rule: PathRule) -> Result<Uri, &'static str> {
    let parsed: Uri = text.trim().parse().map_err(|_| "it is no URL")?;
    let scheme = parsed.scheme_str().unwrap_or_default();
    if !matches!(scheme, "http" | "https") {
        return Err("its scheme is not http or https");
    }
    let authority = parsed.authority().ok_or("it has no host")?;
    if authority.host().trim_matches(['[', ']']).is_empty() {
        return Err("it has no host");
    }
    if authority.as_str().contains('@') {
        return Err("it has a user or a password, which belong into a header");
    }
    if parsed.port_u16() == Some(0) || authority.as_str().ends_with(':') {
        return Err("its port is invalid");
    }
    let path = match rule {
        PathRule::Append(path) => format!("{}{path}", parsed.path().trim_end_matches('/')),
        PathRule::Method(path) => path.to_owned(),
        PathRule::Keep => parsed
            .path_and_query()
            .map_or("/".to_owned(), ToString::to_string),
    };
    Uri::builder()
        .scheme(scheme)
        .authority(authority.as_str())
        .path_and_query(path)
        .build()
        .map_err(|_| "it is no URL")
}

impl Headers {
    /// Parses a list such as `api-key=a%20b,tenant=c`.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::from_pairs(parse_list(text)?.into_iter())
    }

    /// Parses lines such as `Authorization: Bearer TOKEN`. Empty lines, and lines that begin with
    /// `#`, are ignored.
    pub fn parse_lines(text: &str) -> Result<Self, String> {
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let pairs: Result<Vec<_>, String> = lines
            .enumerate()
            .map(|(at, line)| {
                let (name, value) = line
                    .split_once(':')
                    .ok_or_else(|| format!("header {} has no colon", at + 1))?;
                Ok((name.trim().to_owned(), value.trim().to_owned()))
            })
            .collect();
        Self::from_pairs(pairs?.into_iter())
    }

    fn from_pairs(pairs: impl Iterator<Item = (String, String)>) -> Result<Self, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let lower = name.to_ascii_lowercase();
            let key = HeaderName::from_bytes(lower.as_bytes())
                .map_err(|_| format!("{name:?} is no name of a header"))?;
            let mut value = HeaderValue::from_bytes(value.as_bytes())
                .map_err(|_| format!("the value of {name} is not valid in a header"))?;
            value.set_sensitive(true);
            headers.insert(key, value);
            if headers.len() > MAX_HEADERS {
                return Err(format!("there are more than {MAX_HEADERS} headers"));
            }
        }
        Ok(Self(headers))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        self.0.iter()
    }
}

/// Parses a list of pairs with values in percent-encoding, as in W3C Baggage without properties.
pub(crate) fn parse_list(text: &str) -> Result<Vec<(String, String)>, String> {
    let entries = text.split(',').map(str::trim);
    let entries = entries.filter(|entry| !entry.is_empty());
    entries
        .enumerate()
        .map(|(at, entry)| {
            let invalid = || format!("entry {} is not NAME=VALUE", at + 1);
            let (name, value) = entry.split_once('=').ok_or_else(invalid)?;
            let name = name.trim();
            if name.is_empty() {
                return Err(invalid());
            }
            let value = percent_decode_str(value.trim()).decode_utf8();
            let value = value.map_err(|_| invalid())?;
            Ok((name.to_owned(), value.into_owned()))
        })
        .collect()
}

impl FromStr for Protocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "http/protobuf" => Ok(Self::HttpProtobuf),
            "grpc" => Ok(Self::Grpc),
            _ => Err(format!("{text:?} is not supported")),
        }
    }
}

impl FromStr for Compression {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "gzip" => Ok(Self::Gzip),
            "none" => Ok(Self::None),
            _ => Err(format!("{text:?} is not supported")),
        }
    }
}

/// Names alone.
impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests;
