//! Connections and transports.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use super::Registry;
use super::buckets;
use super::family::{Descriptor, Family};
use super::labels::{Fixed, Name, NameAnd};
use crate::hooks::{
    CaReload, ConnectLatency, ConnectOutcome, ResolverLatency, TransportCaReloads,
    TransportCacheEntries, TransportCacheGc, TransportCacheGcCalls, TransportCertRotationGcCalls,
    TransportCreate, TransportCreateCalls,
};

/// client-go's families of name resolution and transports, and our own of connections.
#[derive(Debug)]
pub(crate) struct Transport {
    resolver: Family<Name<Arc<str>>, Histogram>,
    connect: Family<NameAnd<Arc<str>>, Histogram>,
    cache_entries: Family<Fixed<0>, Gauge<u64, AtomicU64>>,
    create_calls: Family<Fixed<1>, Counter>,
    ca_reloads: Family<Fixed<2>, Counter>,
    cert_rotation_gc_calls: Family<Fixed<0>, Counter>,
    cache_gc_calls: Family<Fixed<1>, Counter>,
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
            cache_entries: Family::new(
                Descriptor {
                    name: "rest_client_transport_cache_entries",
                    help: "Number of transport entries in the internal cache",
                    labels: &[],
                },
                Gauge::default,
            ),
            create_calls: Family::new(
                Descriptor {
                    name: "rest_client_transport_create_calls",
                    help: "Number of calls to get a new transport, partitioned by the result: hit, miss, miss-gc, \
                           uncacheable",
                    labels: &["result"],
                },
                Counter::default,
            ),
            ca_reloads: Family::new(
                Descriptor {
                    name: "rest_client_transport_ca_reload",
                    help: "Number of times a CA reload is attempted, partitioned by the result and reason",
                    labels: &["result", "reason"],
                },
                Counter::default,
            ),
            cert_rotation_gc_calls: Family::new(
                Descriptor {
                    name: "rest_client_transport_cert_rotation_gc_calls",
                    help: "Number of transports dropped together with their certificate rotation",
                    labels: &[],
                },
                Counter::default,
            ),
            cache_gc_calls: Family::new(
                Descriptor {
                    name: "rest_client_transport_cache_gc_calls",
                    help: "Number of transport cache entries checked by garbage collection, partitioned by the result: \
                           deleted, skipped",
                    labels: &["result"],
                },
                Counter::default,
            ),
        }
    }

    pub(crate) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        self.resolver.encode(encoder)?;
        self.connect.encode(encoder)?;
        self.cache_entries.encode(encoder)?;
        self.create_calls.encode(encoder)?;
        self.ca_reloads.encode(encoder)?;
        self.cert_rotation_gc_calls.encode(encoder)?;
        self.cache_gc_calls.encode(encoder)
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
        self.transport()
            .connect
            .with(&NameAnd(host, outcome.as_str()), |m| {
                m.observe(latency.as_secs_f64());
            });
    }
}

impl TransportCacheEntries for Registry {
    fn observe(&self, entries: u64) {
        self.transport().cache_entries.with(&Fixed([]), |m| {
            m.set(entries);
        });
    }
}

impl TransportCreateCalls for Registry {
    fn increment(&self, result: TransportCreate) {
        self.transport()
            .create_calls
            .with(&Fixed([result.as_str()]), |m| {
                m.inc();
            });
    }
}

impl TransportCaReloads for Registry {
    fn increment(&self, reload: CaReload) {
        self.transport()
            .ca_reloads
            .with(&Fixed([reload.result(), reload.reason()]), |m| {
                m.inc();
            });
    }
}

impl TransportCertRotationGcCalls for Registry {
    fn increment(&self) {
        self.transport()
            .cert_rotation_gc_calls
            .with(&Fixed([]), |m| {
                m.inc();
            });
    }
}

impl TransportCacheGcCalls for Registry {
    fn increment(&self, result: TransportCacheGc) {
        self.transport()
            .cache_gc_calls
            .with(&Fixed([result.as_str()]), |m| {
                m.inc();
            });
    }
}
