//! Name resolution, connections and CA files.

use std::sync::Arc;
use std::time::Duration;

use super::family::{Descriptor, Family};
use super::labels::{Fixed, Name, NameAnd};
use super::metric::{Counter, Histogram};
use super::{MetricFamily, Registry, buckets};
use crate::hooks::{CaReload, ConnectLatency, ConnectOutcome, ResolverLatency, TransportCaReloads};

/// client-go's families of name resolution and CA files, and our own of connections.
#[derive(Debug)]
pub(crate) struct Transport {
    resolver: Family<Name<Arc<str>>, Histogram>,
    connect: Family<NameAnd<Arc<str>>, Histogram>,
    ca_reloads: Family<Fixed<2>, Counter>,
}

impl Transport {
    pub(crate) fn new() -> Self {
        Self {
            resolver: Family::new(
                Descriptor {
                    name: "rest_client_dns_resolution_duration_seconds",
                    help: "DNS resolver latency in seconds. Broken down by host",
                    labels: &["host"],
                },
                buckets::resolver,
            ),
            connect: Family::new(
                Descriptor {
                    name: "kube_client_connect_duration_seconds",
                    help: "Duration of connection attempts in seconds, including the TLS handshake",
                    labels: &["host", "outcome"],
                },
                buckets::latency,
            ),
            ca_reloads: Family::new(
                Descriptor {
                    name: "rest_client_transport_ca_reload",
                    help: "Number of times a CA reload is attempted, partitioned by the result and reason",
                    labels: &["result", "reason"],
                },
                Counter::default,
            ),
        }
    }

    pub(crate) fn gather(&self, families: &mut Vec<MetricFamily>) {
        self.resolver.gather(families);
        self.connect.gather(families);
        self.ca_reloads.gather(families);
    }
}

impl ResolverLatency for Registry {
    fn observe(&self, host: &str, latency: Duration) {
        self.transport()
            .resolver
            .with(&Name(host), |m| m.observe(latency.as_secs_f64()));
    }
}

impl ConnectLatency for Registry {
    fn observe(&self, host: &str, outcome: ConnectOutcome, latency: Duration) {
        let labels = NameAnd(host, outcome.as_str());
        self.transport()
            .connect
            .with(&labels, |m| m.observe(latency.as_secs_f64()));
    }
}

impl TransportCaReloads for Registry {
    fn increment(&self, reload: CaReload) {
        let labels = Fixed([reload.result(), reload.reason()]);
        self.transport().ca_reloads.with(&labels, Counter::inc);
    }
}
