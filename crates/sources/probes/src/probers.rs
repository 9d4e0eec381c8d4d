//! How targets are probed. Each kind is in a file of its own, with its settings.

mod connect;
pub(crate) mod dns;
pub(crate) mod exec;
pub(crate) mod grpc;
pub(crate) mod http;
mod hyper_client;
pub(crate) mod tcp;
pub(crate) mod tls;
mod tls_stream;
pub(crate) mod udp;

use std::future::Future;
use std::pin::Pin;

use dns::DnsSettings;
use exec::ExecSettings;
use grpc::GrpcSettings;
use http::HttpSettings;
use tcp::TcpSettings;
use tls::TlsSettings;
use udp::UdpSettings;

use crate::run::Run;
use crate::{Failure, Outcome, ProbeContext, Target};

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

    /// Probes a target once, until the deadline of the context. Dropping the future ends the run
    /// and all that it started.
    pub async fn run(&self, target: &Target, context: &ProbeContext) -> Outcome {
        let mut run = Run::new(context);
        let verdict = {
            let probing = self.probe(&mut run, target);
            tokio::time::timeout_at(context.deadline, probing).await
        };
        run.finish(verdict.ok())
    }

    /// Boxed, as the future of `http` is large and callers have many.
    fn probe<'a>(
        &'a self,
        run: &'a mut Run<'_>,
        target: &'a Target,
    ) -> Pin<Box<dyn Future<Output = Result<(), Failure>> + Send + 'a>> {
        match self {
            Self::Http(settings) => Box::pin(settings.run(run, target)),
            Self::Tcp(settings) => Box::pin(settings.run(run, target)),
            Self::Tls(settings) => Box::pin(settings.run(run, target)),
            Self::Udp(settings) => Box::pin(settings.run(run, target)),
            Self::Dns(settings) => Box::pin(settings.run(run, target)),
            Self::Grpc(settings) => Box::pin(settings.run(run, target)),
            Self::Exec(settings) => Box::pin(settings.run(run, target)),
        }
    }
}
