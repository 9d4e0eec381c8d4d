//! Targets: the text that names what is probed.

use std::sync::Arc;

use http::Uri;
use thiserror::Error;

use crate::run::Run;
use crate::{Failure, ProbeTls, Prober, Reason, TargetPattern};

/// What is probed, parsed for one prober.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub(crate) text: Arc<str>,
    pub(crate) place: Place,
    /// Replaces the name of the target in the request and in the verification of its certificate.
    pub(crate) hostname: Option<Arc<str>>,
    /// Where redirects may lead besides the target's own host and port; `None` for anywhere.
    pub(crate) redirects: Option<Arc<[TargetPattern]>>,
}

/// Where a target is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Url(Uri),
    Address {
        /// A name or an address, without brackets.
        host: Arc<str>,
        port: u16,
    },
    /// Passed on as it is.
    Text,
}

/// A target that cannot be probed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TargetError {
    #[error("the target {0:?} is not a URL with a host")]
    Url(String),
    #[error("the target has a user's name or a password: use basic_auth")]
    Credentials,
    #[error("the target {0:?} is not a host with a port")]
    Address(String),
    #[error("the target is empty")]
    Empty,
    #[error("the target is longer than {MAX_TARGET_BYTES} bytes")]
    TooLong,
}

/// Maximum length of a target.
const MAX_TARGET_BYTES: usize = 2048;

impl Target {
    /// Parses a target for a prober: a URL for `http`, host and port for the others, of which
    /// `dns`, `grpc` and `tls` have a default port. `exec` takes any text.
    pub fn parse(text: &str, prober: &Prober) -> Result<Self, TargetError> {
        if text.is_empty() {
            return Err(TargetError::Empty);
        }
        if text.len() > MAX_TARGET_BYTES {
            return Err(TargetError::TooLong);
        }
        let place = match prober {
            Prober::Http(_) => Place::Url(parse_url(text)?),
            Prober::Exec(_) => Place::Text,
            other => parse_address(text, other.default_port())?,
        };
        Ok(Self {
            text: text.into(),
            place,
            hostname: None,
            redirects: None,
        })
    }

    /// Sets the name to request and verify, for `hostname` of `/probe`.
    #[must_use]
    pub fn with_hostname(mut self, hostname: &str) -> Self {
        self.hostname = Some(hostname.into());
        self
    }

    /// Limits redirects to the target's own host and port and to what matches.
    #[must_use]
    pub(crate) fn with_redirects(mut self, patterns: &[TargetPattern]) -> Self {
        self.redirects = Some(patterns.into());
        self
    }

    /// The host and port, for all probers but `http` and `exec`.
    pub(crate) fn address(&self, run: &Run<'_>) -> Result<(&str, u16), Failure> {
        match &self.place {
            Place::Address { host, port } => Ok((host, *port)),
            Place::Url(_) | Place::Text => {
                let message = "the target was parsed for another prober";
                Err(run.fail(Reason::Internal, message))
            }
        }
    }

    /// The name that the target goes by.
    pub(crate) fn name<'a>(&'a self, host: &'a str) -> &'a str {
        self.hostname.as_deref().unwrap_or(host)
    }

    /// The name that its certificate must be for.
    pub(crate) fn server_name<'a>(&'a self, host: &'a str, tls: &'a ProbeTls) -> &'a str {
        let configured = tls.settings().server_name.as_deref();
        configured.unwrap_or_else(|| self.name(host))
    }

    /// Returns the text that was parsed.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Parses a URL. As in `blackbox_exporter` the default scheme is `http`.
fn parse_url(text: &str) -> Result<Uri, TargetError> {
    let invalid = || TargetError::Url(text.chars().take(200).collect());
    let has_scheme = text.split_once("://").is_some_and(|(scheme, _)| {
        scheme
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    });
    let uri: Uri = if has_scheme {
        text.parse().map_err(|_| invalid())?
    } else {
        format!("http://{text}").parse().map_err(|_| invalid())?
    };
    let authority = uri.authority().map(http::uri::Authority::as_str);
    if authority.is_some_and(|authority| authority.contains('@')) {
        return Err(TargetError::Credentials);
    }
    let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
    let has_host = uri.host().is_some_and(|host| !host.is_empty());
    if is_http && has_host {
        Ok(uri)
    } else {
        Err(invalid())
    }
}

fn parse_address(text: &str, default_port: Option<u16>) -> Result<Place, TargetError> {
    let invalid = || TargetError::Address(text.chars().take(200).collect());
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or_else(invalid)?;
        match rest.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if rest.is_empty() => (host, None),
            None => return Err(invalid()),
        }
    } else {
        match text.split_once(':') {
            // An address of IPv6 without a port.
            Some((_, rest)) if rest.contains(':') => (text, None),
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    let port = match port {
        Some(port) => port.parse().map_err(|_| invalid())?,
        None => default_port.ok_or_else(invalid)?,
    };
    let is_name = |c: char| !c.is_whitespace() && !c.is_control() && c != '/' && c != '@';
    if host.is_empty() || !host.chars().all(is_name) {
        return Err(invalid());
    }
    Ok(Place::Address {
        host: host.into(),
        port,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn probers() -> [Prober; 5] {
        [
            Prober::Http(Box::default()),
            Prober::Tcp(Box::default()),
            Prober::Dns(Box::default()),
            Prober::Grpc(Box::default()),
            Prober::Exec(Box::default()),
        ]
    }

    #[test]
    fn ports_have_defaults_where_the_protocol_has_one() {
        let port = |text: &str, prober: &Prober| match Target::parse(text, prober).ok()?.place {
            Place::Address { host, port } => Some((host.to_string(), port)),
            _ => None,
        };
        let [_, tcp, dns, grpc, _] = probers();
        let tls = Prober::Tls(Box::default());
        let host = |port| Some(("h".to_owned(), port));
        assert_eq!(port("h", &tcp), None);
        assert_eq!(port("h", &dns), host(53));
        assert_eq!(port("h", &grpc), host(80));
        assert_eq!(port("h", &tls), host(443));
        assert_eq!(port("h:1", &dns), host(1));
        assert_eq!(port("::1", &dns), Some(("::1".to_owned(), 53)));
        assert_eq!(port("[::1]:5353", &dns), Some(("::1".to_owned(), 5353)));
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn any_text_is_parsed_or_refused(text in "[ -~\\u{e9}]{0,40}") {
            for prober in probers() {
                if let Ok(target) = Target::parse(&text, &prober) {
                    prop_assert_eq!(target.as_str(), text.as_str());
                }
            }
        }

        #[test]
        fn hosts_and_ports_are_read_back(host in "[a-z][a-z0-9.-]{0,20}", port in any::<u16>()) {
            let [_, tcp, ..] = probers();
            let target = Target::parse(&format!("{host}:{port}"), &tcp).unwrap();
            prop_assert_eq!(target.place, Place::Address { host: host.as_str().into(), port });
        }
    }
}
