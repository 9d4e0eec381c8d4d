//! The errors of scrapes, with advice for operators.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use kubevitals_tls::HandshakeFailure;
use thiserror::Error;

use crate::target::InvalidAnnotation;

/// The reason why a scrape failed. Its texts are bounded, whatever the kubelet sent.
#[derive(Debug, Clone, Error)]
pub enum ScrapeError {
    #[error("node has no address of the types in --kubelet-preferred-address-types")]
    NoAddress,
    /// An annotation of the node is invalid. Nothing was sent to it.
    #[error("{0}")]
    Annotation(InvalidAnnotation),
    /// There is no valid token to send.
    #[error("{reason}")]
    NoToken { reason: String },
    #[error("cannot resolve {host}: {}", Bounded(source))]
    Dns {
        host: String,
        source: Arc<io::Error>,
    },
    /// The connection was refused, or closed before it carried a response.
    #[error("cannot connect to {address}: {}", Bounded(source))]
    Connect {
        address: String,
        source: Arc<io::Error>,
    },
    /// The process has no file left to open, whatever the kubelet does.
    #[error("cannot open a connection to {address}: {}", Bounded(source))]
    OpenFiles {
        address: String,
        source: Arc<io::Error>,
    },
    /// The handshake failed, above all because the certificate is not trusted.
    #[error("TLS handshake with {address} failed: {failure}")]
    Tls {
        address: String,
        #[source]
        failure: HandshakeFailure,
    },
    /// A response other than 200.
    #[error("{address}{path} returned status {status}{}", Excerpt(detail))]
    Status {
        address: String,
        path: String,
        status: u16,
        /// The beginning of the body.
        detail: String,
    },
    #[error("{address} did not respond within {limit:?}")]
    Timeout { address: String, limit: Duration },
    /// The body is longer than a kubelet's can be.
    #[error("response of {address}{path} exceeds {limit} bytes")]
    TooLarge {
        address: String,
        path: String,
        limit: usize,
    },
    /// Other large responses take the memory for it. This is not the kubelet's fault.
    #[error("no memory is left for the response of {address}{path}, which is larger than usual")]
    MemoryLimit { address: String, path: String },
    /// The response is not HTTP/1.1, or ended before the body began.
    #[error("invalid HTTP response from {address}: {detail}")]
    Protocol { address: String, detail: String },
    /// The body holds no metrics of a kubelet.
    #[error("response of {address}{path} contains no metrics: {detail}")]
    NotMetrics {
        address: String,
        path: String,
        detail: String,
    },
    /// The body ended early. The samples before its end are used.
    #[error(
        "response of {address}{path} was truncated after {bytes} bytes{}",
        Cause(cause)
    )]
    Truncated {
        address: String,
        path: String,
        bytes: usize,
        /// The error of the connection, unless it was closed.
        #[source]
        cause: Option<Arc<io::Error>>,
    },
}

/// The text of an error of the system or of TLS, bounded.
struct Bounded<'a>(&'a io::Error);

/// The error of a connection, if there was one.
struct Cause<'a>(&'a Option<Arc<io::Error>>);

/// The beginning of a body, unless it is empty.
struct Excerpt<'a>(&'a str);

impl ScrapeError {
    /// All values of [`ScrapeError::reason`].
    pub const REASONS: [&'static str; 24] = [
        "no-address",
        "annotation",
        "no-token",
        "dns",
        "connect",
        "open-files",
        "tls-san",
        "tls-ca",
        "tls-expired",
        "tls-not-yet-valid",
        "tls-certificate",
        "tls-refused",
        "tls-protocol",
        "tls-pin",
        "http-401",
        "http-403",
        "http-404",
        "http-5xx",
        "http-other",
        "timeout",
        "too-large",
        "memory-limit",
        "parse",
        "truncated",
    ];

    /// Returns a short name for metric labels.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NoAddress => "no-address",
            Self::Annotation(_) => "annotation",
            Self::NoToken { .. } => "no-token",
            Self::Dns { .. } => "dns",
            Self::Connect { .. } => "connect",
            Self::OpenFiles { .. } => "open-files",
            Self::Tls { failure, .. } => failure.reason(),
            Self::Status { status, .. } => match status {
                401 => "http-401",
                403 => "http-403",
                404 => "http-404",
                500..=599 => "http-5xx",
                _ => "http-other",
            },
            Self::Timeout { .. } => "timeout",
            Self::TooLarge { .. } => "too-large",
            Self::MemoryLimit { .. } => "memory-limit",
            Self::Protocol { .. } => "http-other",
            Self::NotMetrics { .. } => "parse",
            Self::Truncated { .. } => "truncated",
        }
    }

    /// Returns advice for the operator, if there is any.
    pub const fn remedy(&self) -> Option<&'static str> {
        Some(match self {
            Self::NoAddress => {
                "add a type of address that the node has to --kubelet-preferred-address-types"
            }
            Self::Annotation(_) => "correct the annotation, or remove it",
            Self::NoToken { .. } => {
                "grant `create` on serviceaccounts/token for the ServiceAccount in --kubelet-service-account"
            }
            Self::Dns { .. } => {
                "put InternalIP first in --kubelet-preferred-address-types, or make the node's name resolvable"
            }
            Self::Connect { .. } => {
                "check that the kubelet runs and that no network policy or firewall blocks its port"
            }
            Self::OpenFiles { .. } => {
                "raise the hard limit of open files of this process (LimitNOFILE of the container runtime, ulimit -n)"
            }
            Self::Tls { failure, .. } => return tls_remedy(failure),
            Self::Status { status: 401, .. } => {
                "enable webhook authentication on the kubelet (authentication.webhook.enabled), or set --kubelet-client-certificate"
            }
            Self::Status { status: 403, .. } => {
                "grant `get` on nodes/metrics to this service account"
            }
            Self::Status { status: 404, .. } => {
                "the node serves neither /metrics/resource nor /stats/summary: annotate it with metrics.k8s.io/resource-metrics-path, or with kubevitals.io/scrape=false to exclude it"
            }
            Self::Timeout { .. } => {
                "check the load of the node, or raise --kubelet-request-timeout"
            }
            Self::MemoryLimit { .. } => {
                "find the nodes that fail with reason too-large, or raise --scrape-memory-limit"
            }
            _ => return None,
        })
    }

    /// Returns whether another address of the node may work: there was no response, or not from the
    /// kubelet.
    pub(crate) const fn concerns_address(&self) -> bool {
        matches!(
            self,
            Self::Dns { .. } | Self::Connect { .. } | Self::Tls { .. }
        )
    }

    pub(crate) const fn is_not_found(&self) -> bool {
        matches!(self, Self::Status { status: 404, .. })
    }
}

const fn tls_remedy(failure: &HandshakeFailure) -> Option<&'static str> {
    Some(match failure {
        HandshakeFailure::UntrustedIssuer { .. } | HandshakeFailure::AuthorityAsServer { .. } => {
            "set --kubelet-certificate-authority to the CA of the kubelets, let kubelets request certificates from the cluster (serverTLSBootstrap), or set --kubelet-pin-certificates"
        }
        HandshakeFailure::NameMismatch { .. } => {
            "the certificate must name the node or one of the addresses in its status"
        }
        HandshakeFailure::Expired { .. } => {
            "renew the kubelet's serving certificate (approve its pending certificate request)"
        }
        HandshakeFailure::NotYetValid { .. } => "synchronize the clocks",
        _ => return None,
    })
}

impl fmt::Display for Bounded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&excerpt(self.0.to_string().as_bytes()))
    }
}

impl fmt::Display for Cause<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(error) => write!(f, ": {}", Bounded(error)),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        write!(f, ": {}", self.0)
    }
}

/// Returns the beginning of received bytes, bounded and without control characters.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    const MAX_CHARS: usize = 160;
    let text = String::from_utf8_lossy(bytes.get(..MAX_CHARS * 4).unwrap_or(bytes));
    let clean = text
        .trim()
        .chars()
        .take(MAX_CHARS)
        .map(|c| if c.is_control() { ' ' } else { c });
    clean.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_endpoint() {
        let forbidden = ScrapeError::Status {
            address: "10.0.0.3:10250".into(),
            path: "/metrics/resource".into(),
            status: 403,
            detail: excerpt(b"Forbidden (user=system:serviceaccount:a:b)\n\x07"),
        };
        insta::assert_snapshot!(forbidden, @"10.0.0.3:10250/metrics/resource returned status 403: Forbidden (user=system:serviceaccount:a:b)");
        assert_eq!(forbidden.reason(), "http-403");
        assert!(forbidden.remedy().is_some());
        let empty = ScrapeError::Status {
            address: "[fd00::3]:10250".into(),
            path: "/".into(),
            status: 500,
            detail: excerpt(&[]),
        };
        insta::assert_snapshot!(empty, @"[fd00::3]:10250/ returned status 500");
    }

    /// Without the cause, a reset looked like a kubelet that closes connections.
    #[test]
    fn errors_keep_their_cause() {
        let error = |cause| ScrapeError::Truncated {
            address: "10.0.0.3:10250".into(),
            path: "/metrics/resource".into(),
            bytes: 7,
            cause,
        };
        let reset = Arc::new(io::Error::from(io::ErrorKind::ConnectionReset));
        let (reset, closed) = (error(Some(reset)), error(None));
        insta::assert_snapshot!(reset, @"response of 10.0.0.3:10250/metrics/resource was truncated after 7 bytes: connection reset");
        insta::assert_snapshot!(closed, @"response of 10.0.0.3:10250/metrics/resource was truncated after 7 bytes");
        let source =
            |error: &ScrapeError| std::error::Error::source(error).map(ToString::to_string);
        assert_eq!(source(&reset).as_deref(), Some("connection reset"));
        assert_eq!(source(&closed), None);
    }

    #[test]
    fn excerpts_are_bounded_and_printable() {
        let noise: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        let text = excerpt(&noise);
        assert!(text.chars().count() <= 160 && !text.chars().any(char::is_control));
    }
}
