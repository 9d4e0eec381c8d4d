//! Why a scrape failed, in words that say what to do.

use std::fmt;
use std::time::Duration;

use kubevitals_tls::HandshakeFailure;
use thiserror::Error;

/// Why a scrape failed. Texts in it are bounded, whatever the kubelet sent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Failure {
    /// The node has no address of any wanted type.
    #[error("it has no address of the types in --kubelet-preferred-address-types")]
    NoAddress,
    /// The name of the node means nothing here.
    #[error("{host} cannot be resolved: {detail}")]
    Dns {
        /// Which name.
        host: String,
        /// What the resolver said.
        detail: String,
    },
    /// Nobody takes the connection, or it was lost.
    #[error("{address} cannot be reached: {detail}")]
    Connect {
        /// Whom we dialled.
        address: String,
        /// What the system said.
        detail: String,
    },
    /// The handshake failed: above all, the certificate is not to be trusted.
    #[error("{address}: {failure}")]
    Tls {
        /// Whom we dialled.
        address: String,
        /// What is wrong.
        #[source]
        failure: HandshakeFailure,
    },
    /// An answer other than 200.
    #[error("{address}{path} answers {status}{}", Excerpt(detail))]
    Status {
        /// Whom we asked.
        address: String,
        /// What for.
        path: String,
        /// What it answered.
        status: u16,
        /// The beginning of the body.
        detail: String,
    },
    /// It took too long.
    #[error("{address} gave no answer within {limit:?}")]
    Timeout {
        /// Whom we asked last.
        address: String,
        /// How long we waited.
        limit: Duration,
    },
    /// The body is longer than a kubelet's can be.
    #[error("{address}{path} answers with more than {limit} bytes")]
    TooLarge {
        /// Whom we asked.
        address: String,
        /// What for.
        path: String,
        /// What would have been taken.
        limit: usize,
    },
    /// What was said is not HTTP, or ended before the body began.
    #[error("{address} breaks off or does not speak HTTP/1.1: {detail}")]
    Protocol {
        /// Whom we asked.
        address: String,
        /// What is wrong.
        detail: String,
    },
    /// The body holds nothing that a kubelet would say.
    #[error("{address}{path} answers with something else than metrics: {detail}")]
    NotMetrics {
        /// Whom we asked.
        address: String,
        /// What for.
        path: String,
        /// What was found instead.
        detail: String,
    },
    /// The body ended too early; what came before is used.
    #[error("{address}{path} broke off after {bytes} bytes")]
    Partial {
        /// Whom we asked.
        address: String,
        /// What for.
        path: String,
        /// What came.
        bytes: usize,
    },
}

/// The beginning of a body, if there is any.
struct Excerpt<'a>(&'a str);

impl Failure {
    /// Every value of [`Failure::reason`].
    pub const REASONS: [&'static str; 20] = [
        "no-address",
        "dns",
        "connect",
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
        "parse",
        "partial",
    ];

    /// A short name that is safe as the value of a metric's label.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NoAddress => "no-address",
            Self::Dns { .. } => "dns",
            Self::Connect { .. } => "connect",
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
            Self::Protocol { .. } => "http-other",
            Self::NotMetrics { .. } => "parse",
            Self::Partial { .. } => "partial",
        }
    }

    /// What an operator can do about it, where that is known.
    pub const fn remedy(&self) -> Option<&'static str> {
        Some(match self {
            Self::NoAddress => "name a type of address that the node has",
            Self::Dns { .. } => {
                "put InternalIP first in --kubelet-preferred-address-types, or let the node's names resolve here"
            }
            Self::Connect { .. } => {
                "check that the kubelet runs and that no network policy or firewall keeps us from its port"
            }
            Self::Tls { failure, .. } => return tls_remedy(failure),
            Self::Status { status: 401, .. } => {
                "let the kubelet authenticate by webhook (authentication.webhook.enabled), or give --kubelet-client-certificate"
            }
            Self::Status { status: 403, .. } => {
                "allow `get` on nodes/metrics to this service account"
            }
            Self::Status { status: 404, .. } => {
                "the node serves neither /metrics/resource nor /stats/summary: annotate it with metrics.k8s.io/resource-metrics-path, or leave it out with --node-selector"
            }
            Self::Timeout { .. } => "look at the node's load, or raise --kubelet-request-timeout",
            _ => return None,
        })
    }

    /// Whether another address of the node could do better: nobody answered there, or somebody else
    /// than the kubelet.
    pub(crate) const fn is_of_the_address(&self) -> bool {
        matches!(
            self,
            Self::Dns { .. } | Self::Connect { .. } | Self::Tls { .. }
        )
    }
}

const fn tls_remedy(failure: &HandshakeFailure) -> Option<&'static str> {
    Some(match failure {
        HandshakeFailure::UntrustedIssuer { .. } | HandshakeFailure::AuthorityAsServer { .. } => {
            "give the authority of the kubelets with --kubelet-certificate-authority, let kubelets request certificates from the cluster (serverTLSBootstrap), or pin their keys"
        }
        HandshakeFailure::NameMismatch { .. } => {
            "the certificate must name the node or one of the addresses in its status"
        }
        HandshakeFailure::Expired { .. } => {
            "renew the kubelet's serving certificate (approve its pending certificate request)"
        }
        HandshakeFailure::NotYetValid { .. } => "set the clocks",
        _ => return None,
    })
}

impl fmt::Display for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        write!(f, ": {}", self.0)
    }
}

/// The beginning of what somebody else sent, fit for a log line.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    const MOST: usize = 160;
    let text = String::from_utf8_lossy(bytes.get(..MOST * 4).unwrap_or(bytes));
    let clean = text
        .trim()
        .chars()
        .take(MOST)
        .map(|c| if c.is_control() { ' ' } else { c });
    clean.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_say_what_and_where() {
        let forbidden = Failure::Status {
            address: "10.0.0.3:10250".into(),
            path: "/metrics/resource".into(),
            status: 403,
            detail: excerpt(b"Forbidden (user=system:serviceaccount:a:b)\n\x07"),
        };
        insta::assert_snapshot!(forbidden, @"10.0.0.3:10250/metrics/resource answers 403: Forbidden (user=system:serviceaccount:a:b)");
        assert_eq!(forbidden.reason(), "http-403");
        assert!(forbidden.remedy().is_some());
        let empty = Failure::Status {
            address: "[fd00::3]:10250".into(),
            path: "/".into(),
            status: 500,
            detail: excerpt(&[]),
        };
        insta::assert_snapshot!(empty, @"[fd00::3]:10250/ answers 500");
    }

    #[test]
    fn excerpts_are_bounded_and_printable() {
        let noise: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        let text = excerpt(&noise);
        assert!(text.chars().count() <= 160 && !text.chars().any(char::is_control));
    }
}
