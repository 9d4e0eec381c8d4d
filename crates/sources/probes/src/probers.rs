//! How targets are probed. Each kind is in a file of its own, with its settings.

pub(crate) mod dns;
pub(crate) mod exec;
pub(crate) mod grpc;
pub(crate) mod http;
pub(crate) mod tcp;
pub(crate) mod tls;
pub(crate) mod udp;

use dns::DnsSettings;
use exec::ExecSettings;
use grpc::GrpcSettings;
use http::HttpSettings;
use tcp::TcpSettings;
use tls::TlsSettings;
use udp::UdpSettings;

use crate::{Outcome, ProbeContext, Target};

/// How a target is probed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Prober {
    Http(Box<HttpSettings>),
    Tcp(Box<TcpSettings>),
    Tls(Box<TlsSettings>),
    Udp(Box<UdpSettings>),
    Dns(Box<DnsSettings>),
    Grpc(Box<GrpcSettings>),
    Exec(Box<ExecSettings>),
}

impl Prober {
    /// The name in the configuration.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Http(_) => "http",
            Self::Tcp(_) => "tcp",
            Self::Tls(_) => "tls",
            Self::Udp(_) => "udp",
            Self::Dns(_) => "dns",
            Self::Grpc(_) => "grpc",
            Self::Exec(_) => "exec",
        }
    }

    /// The port of targets that name none.
    pub(crate) fn default_port(&self) -> Option<u16> {
        match self {
            Self::Dns(settings) if settings.dns_over_tls => Some(853),
            Self::Dns(_) => Some(53),
            Self::Grpc(settings) if settings.tls => Some(443),
            Self::Grpc(_) => Some(80),
            Self::Tls(_) => Some(443),
            Self::Http(_) | Self::Tcp(_) | Self::Udp(_) | Self::Exec(_) => None,
        }
    }

    /// Probes a target once. Dropping the future ends the run and all that it started.
    pub async fn run(&self, target: &Target, context: &ProbeContext) -> Outcome {
        let _ = (target, context);
        std::future::pending().await
    }
}
