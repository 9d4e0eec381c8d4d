//! `/probe?target=&module=`: which requests are answered, and how long they may take.
//!
//! An endpoint that probes what anybody names is a way into the cluster's network
//! (CVE-2020-16248). Nothing is allowed but what the configuration says.

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::config::Config;
use crate::context::AddressRange;
use crate::module::Module;
use crate::target::{Place, Target};

/// The module of a request that names none, as in blackbox_exporter.
pub const DEFAULT_MODULE: &str = "http_2xx";

/// How much earlier than the scraper a probe gives up.
const TIMEOUT_OFFSET: Duration = Duration::from_millis(500);

/// The parameters of a request.
#[derive(Debug, Clone, Copy, Default)]
pub struct EndpointRequest<'a> {
    pub target: Option<&'a str>,
    pub module: Option<&'a str>,
    /// The name to request and verify instead of the target's.
    pub hostname: Option<&'a str>,
    /// The value of `X-Prometheus-Scrape-Timeout-Seconds`.
    pub scrape_timeout: Option<&'a str>,
}

/// A request that may be answered.
#[derive(Debug, Clone)]
pub struct EndpointProbe {
    pub module: Arc<Module>,
    pub target: Target,
    pub timeout: Duration,
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EndpointError {
    #[error("the parameter `target` is missing")]
    NoTarget,
    #[error("there is no such module")]
    UnknownModule,
    #[error("{0}")]
    Target(#[from] crate::TargetError),
    #[error(
        "this target is not allowed: no probe with this module has it, and it matches nothing in `endpoint.allow_targets`"
    )]
    NotAllowed,
    #[error("this hostname is not allowed: it matches nothing in `endpoint.allow_targets`")]
    HostnameNotAllowed,
    #[error("X-Prometheus-Scrape-Timeout-Seconds is not a number of seconds")]
    Timeout,
}

/// What targets of requests may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetPattern {
    host: HostPattern,
    /// Any, if `None`.
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HostPattern {
    /// `*`
    Any,
    /// `*.example.com`, kept with its dot.
    Suffix(String),
    /// A name, in lower case.
    Name(String),
    Range(AddressRange),
}

impl EndpointError {
    /// The status code of the response.
    pub const fn status(&self) -> u16 {
        match self {
            Self::NotAllowed | Self::HostnameNotAllowed => 403,
            _ => 400,
        }
    }
}

impl Config {
    /// Decides on a request of `/probe`. Allowed are the targets of probes, with their modules, and
    /// what matches `endpoint.allow_targets`.
    pub fn endpoint(&self, request: &EndpointRequest<'_>) -> Result<EndpointProbe, EndpointError> {
        let name = request.module.unwrap_or(DEFAULT_MODULE);
        let compiled = self.compiled(name).ok_or(EndpointError::UnknownModule)?;
        let text = request.target.filter(|target| !target.is_empty());
        let text = text.ok_or(EndpointError::NoTarget)?;
        let module = &compiled.module;
        let mut target = Target::parse(text, &module.prober)?;
        let is_of_probe = || {
            self.configured_probes().iter().any(|probe| {
                *probe.info.module == *name && probe.targets.iter().any(|own| own.as_str() == text)
            })
        };
        let patterns = self.allow_targets();
        let matches = |host: &str, port| patterns.iter().any(|pattern| pattern.matches(host, port));
        let allowed = host_and_port(&target).is_some_and(|(host, port)| matches(host, port));
        if !is_of_probe() {
            if !allowed {
                return Err(EndpointError::NotAllowed);
            }
            // Else an allowed host could send the probe to any other.
            target = target.with_redirects(patterns);
        }
        if let Some(hostname) = request.hostname.filter(|hostname| !hostname.is_empty()) {
            let port = host_and_port(&target).map_or(0, |(_, port)| port);
            if !matches(hostname, port) {
                return Err(EndpointError::HostnameNotAllowed);
            }
            target = target.with_hostname(hostname);
        }
        Ok(EndpointProbe {
            timeout: timeout(module.timeout, request.scrape_timeout)?,
            module: Arc::clone(module),
            target,
        })
    }
}

/// The timeout of a probe: that of the scraper, less an offset, and at most that of the module.
fn timeout(module: Duration, scrape: Option<&str>) -> Result<Duration, EndpointError> {
    let Some(scrape) = scrape else {
        return Ok(module);
    };
    let seconds: f64 = scrape.trim().parse().map_err(|_| EndpointError::Timeout)?;
    let scrape = Duration::try_from_secs_f64(seconds).map_err(|_| EndpointError::Timeout)?;
    // A scraper without patience still gets an answer: half of its time.
    let scrape = scrape.saturating_sub(TIMEOUT_OFFSET).max(scrape / 2);
    Ok(if scrape.is_zero() {
        module
    } else {
        module.min(scrape)
    })
}

fn host_and_port(target: &Target) -> Option<(&str, u16)> {
    match &target.place {
        Place::Url(url) => {
            let default = if url.scheme_str() == Some("https") {
                443
            } else {
                80
            };
            let host = url.host()?;
            let host = host.strip_prefix('[').unwrap_or(host);
            let host = host.strip_suffix(']').unwrap_or(host);
            Some((host, url.port_u16().unwrap_or(default)))
        }
        Place::Address { host, port } => Some((host, *port)),
        Place::Text => None,
    }
}

impl TargetPattern {
    pub(crate) fn matches(&self, host: &str, port: u16) -> bool {
        if self.port.is_some_and(|own| own != port) {
            return false;
        }
        let address = host.parse::<IpAddr>().ok();
        let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        match &self.host {
            HostPattern::Any => true,
            HostPattern::Suffix(suffix) => {
                address.is_none() && name.len() > suffix.len() && name.ends_with(suffix.as_str())
            }
            HostPattern::Name(own) => address.is_none() && name == *own,
            HostPattern::Range(range) => address.is_some_and(|address| range.contains(address)),
        }
    }
}

impl FromStr for TargetPattern {
    type Err = String;

    /// Parses `*`, a name, `*.example.com`, an address or a range of them, each with `:PORT` or
    /// without. Addresses of IPv6 with a port have brackets.
    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || {
            "must be a host, `*.example.com`, an address or a range such as `10.0.0.0/8`, \
             with `:PORT` or without"
                .to_owned()
        };
        let (host, port) = if let Some(rest) = text.strip_prefix('[') {
            let (host, rest) = rest.split_once(']').ok_or_else(invalid)?;
            (
                host,
                rest.strip_prefix(':').or((!rest.is_empty()).then_some("")),
            )
        } else {
            match text.rsplit_once(':') {
                Some((host, _)) if host.contains(':') => (text, None),
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            }
        };
        let port = port.map(str::parse).transpose().map_err(|_| invalid())?;
        let is_name = |name: &str| {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            !name.is_empty() && name.len() <= 253 && name.bytes().all(allowed)
        };
        let lower = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let host = if host == "*" {
            HostPattern::Any
        } else if let Ok(range) = host.parse() {
            HostPattern::Range(range)
        } else if let Some(suffix) = lower.strip_prefix('*') {
            let domain = suffix.strip_prefix('.').filter(|domain| is_name(domain));
            domain.ok_or_else(invalid)?;
            HostPattern::Suffix(suffix.to_owned())
        } else if is_name(&lower) {
            HostPattern::Name(lower)
        } else {
            return Err(invalid());
        };
        Ok(Self { host, port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Variables;

    fn allows(pattern: &str, host: &str, port: u16) -> bool {
        pattern
            .parse::<TargetPattern>()
            .unwrap()
            .matches(host, port)
    }

    #[test]
    fn a_pattern_matches_whole_hosts_only() {
        assert!(allows("example.com", "EXAMPLE.com.", 80));
        assert!(!allows("example.com", "example.com.evil.org", 80));
        assert!(!allows("example.com", "sub.example.com", 80));
        assert!(allows("*.example.com", "a.b.example.com", 80));
        assert!(!allows("*.example.com", "example.com", 80));
        assert!(!allows("*.example.com", "badexample.com", 80));
        assert!(allows("10.0.0.0/8:9100", "10.1.2.3", 9100));
        assert!(!allows("10.0.0.0/8:9100", "10.1.2.3", 22));
        assert!(!allows("10.0.0.0/8", "10.evil.org", 80));
        assert!(allows("[fd00::1]:53", "fd00::1", 53));
        assert!(allows("fd00::/16", "fd00::2", 53));
        assert!(allows("*", "anything", 1));
        for bad in [
            "", "http://x", "*bad.com", "a b", "x:port", "[::1", "x/y", "*.",
        ] {
            assert!(bad.parse::<TargetPattern>().is_err(), "{bad}");
        }
    }

    fn config() -> Config {
        let text = "
modules: {short: {prober: http, timeout: 2s}}
probes: [{name: web, module: http_2xx, targets: [http://web.example/]}]
endpoint: {allow_targets: ['*.allowed.example:443']}
";
        Config::parse(text, &Variables::default()).unwrap()
    }

    fn decide(target: &str, module: Option<&str>) -> Result<(), EndpointError> {
        let request = EndpointRequest {
            target: Some(target),
            module,
            ..EndpointRequest::default()
        };
        config().endpoint(&request).map(drop)
    }

    #[test]
    fn only_configured_and_matching_targets_are_allowed() {
        assert_eq!(decide("http://web.example/", None), Ok(()));
        let denied = Err(EndpointError::NotAllowed);
        assert_eq!(decide("http://web.example/admin", None), denied);
        assert_eq!(decide("http://web.example/", Some("short")), denied);
        assert_eq!(decide("http://169.254.169.254/", None), denied);
        assert_eq!(decide("https://a.allowed.example/x", Some("short")), Ok(()));
        assert_eq!(decide("http://a.allowed.example/x", None), denied);
        assert!(decide("https://a.allowed.example@evil.org/", None).is_err());
        assert_eq!(
            decide("http://web.example/", Some("no")),
            Err(EndpointError::UnknownModule)
        );
        assert_eq!(decide("", None), Err(EndpointError::NoTarget));
        assert_eq!(EndpointError::NotAllowed.status(), 403);
    }

    #[test]
    fn nothing_is_allowed_without_configuration() {
        let config = Config::parse("", &Variables::default()).unwrap();
        let request = EndpointRequest {
            target: Some("http://localhost/"),
            ..EndpointRequest::default()
        };
        assert_eq!(
            config.endpoint(&request).unwrap_err(),
            EndpointError::NotAllowed
        );
    }

    #[test]
    fn a_hostname_must_be_allowed_too() {
        let config = config();
        let decide = |hostname| {
            let request = EndpointRequest {
                target: Some("https://a.allowed.example/"),
                hostname: Some(hostname),
                ..EndpointRequest::default()
            };
            config.endpoint(&request).map(|probe| probe.target)
        };
        assert!(decide("b.allowed.example").is_ok());
        assert_eq!(
            decide("admin.internal"),
            Err(EndpointError::HostnameNotAllowed)
        );
    }

    #[test]
    fn the_timeout_is_that_of_the_scraper_less_an_offset_capped_by_the_module() {
        let seconds = |module, scrape| timeout(Duration::from_secs(module), scrape);
        assert_eq!(seconds(5, None), Ok(Duration::from_secs(5)));
        assert_eq!(seconds(5, Some("10")), Ok(Duration::from_secs(5)));
        assert_eq!(seconds(60, Some("10")), Ok(Duration::from_millis(9_500)));
        assert_eq!(seconds(60, Some("0.6")), Ok(Duration::from_millis(300)));
        for bad in ["x", "-1", "NaN", "inf", "1e400"] {
            assert_eq!(seconds(5, Some(bad)), Err(EndpointError::Timeout), "{bad}");
        }
    }
}
