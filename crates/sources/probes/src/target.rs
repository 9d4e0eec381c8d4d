//! Targets: the text that names what is probed.

use std::sync::Arc;

use http::Uri;
use thiserror::Error;

use crate::run::Run;
use crate::{Failure, ProbeTls, Prober, Reason};

/// What is probed, parsed for one prober.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub(crate) text: Arc<str>,
    pub(crate) place: Place,
    /// Replaces the name of the target in the request and in the verification of its certificate.
    pub(crate) hostname: Option<Arc<str>>,
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
    /// Parses a target for a prober: a URL for `http`, host and port for the others, of which `dns`,
    /// `grpc` and `tls` have a default port. `exec` takes any text.
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
        })
    }

    /// Sets the name to request and verify, for `hostname` of `/probe`.
    #[must_use]
    pub fn with_hostname(mut self, hostname: &str) -> Self {
        self.hostname = Some(hostname.into());
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

/// Parses a URL. As in blackbox_exporter the default scheme is `http`.
fn parse_url(text: &str) -> Result<Uri, TargetError> {
    let invalid = || TargetError::Url(text.chars().take(200).collect());
    let uri: Uri = if text.contains("://") {
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
