//! The Prometheus adapter: client-go's families, with the names, labels and buckets that dashboards
//! expect.
//!
//! | family | type | labels |
//! |---|---|---|
//! | `rest_client_request_duration_seconds` | histogram | `verb`, `host` |
//! | `rest_client_rate_limiter_duration_seconds` | histogram | `verb`, `host` |
//! | `rest_client_request_size_bytes`, `rest_client_response_size_bytes` | histogram | `verb`, `host` |
//! | `rest_client_requests_total` | counter | `code`, `method`, `host` |
//! | `rest_client_request_retries_total` | counter | `code`, `verb`, `host` |
//! | `rest_client_dns_resolution_duration_seconds` | histogram | `host` |
//! | `rest_client_exec_plugin_ttl_seconds` | gauge | |
//! | `rest_client_exec_plugin_certificate_rotation_age` | histogram | |
//! | `rest_client_exec_plugin_call_total` | counter | `code`, `call_status` |
//! | `rest_client_transport_cache_entries` | gauge | |
//! | `rest_client_transport_create_calls_total`, `rest_client_transport_cache_gc_calls_total` | counter | `result` |
//! | `rest_client_transport_ca_reload_total` | counter | `result`, `reason` |
//! | `rest_client_transport_cert_rotation_gc_calls_total` | counter | |
//! | `workqueue_depth`, `workqueue_unfinished_work_seconds`, `workqueue_longest_running_processor_seconds` | gauge | `name` |
//! | `workqueue_adds_total`, `workqueue_retries_total` | counter | `name` |
//! | `workqueue_queue_duration_seconds`, `workqueue_work_duration_seconds` | histogram | `name` |
//! | `leader_election_master_status` | gauge | `name` |
//! | `leader_election_slowpath_total` | counter | `name` |
//!
//! Our own, by Kubernetes verb (`list`, `watch`, …) and resource, which client-go lacks. Their
//! labels are bounded, see [`Endpoint`](crate::Endpoint).
//!
//! | family | type | labels |
//! |---|---|---|
//! | `kube_client_requests_total` | counter | `verb`, `group`, `version`, `resource`, `subresource`, `code`, `outcome` |
//! | `kube_client_request_duration_seconds` | histogram | `verb`, `group`, `version`, `resource`, `subresource` |
//! | `kube_client_streams_total`, `kube_client_stream_events_total`, `kube_client_stream_received_bytes_total` | counter | `kind`, `group`, `version`, `resource`, `subresource` |
//! | `kube_client_streams_open` | gauge | `kind`, `group`, `version`, `resource`, `subresource` |
//! | `kube_client_stream_duration_seconds` | histogram | `kind`, `group`, `version`, `resource`, `subresource`, `end` |
//! | `kube_client_connect_duration_seconds` | histogram | `host`, `outcome` |
//! | `kube_client_exec_plugin_policy_calls_total` | counter | `verdict` |
//! | `kube_client_reflector_*` | | `name` |
//!
//! A series appears with its first value. `rest_client_exec_plugin_policy_call_total` does not have
//! client-go's name here: there its labels do not match its values, and it is never registered.

mod buckets;
mod family;
mod labels;
mod plugin;
mod requests;
mod runtime;
mod transport;

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use crate::Hooks;

/// All families, shared by all clones. Any number of clients may report to one registry.
///
/// It is a [`Collector`]: add a clone to the registry that your program exposes.
///
/// ```
/// let registry = kube_client_metrics::Registry::new();
/// let mut exposed = prometheus_client::registry::Registry::default();
/// exposed.register_collector(Box::new(registry.clone()));
/// ```
///
/// A program without a registry of its own calls [`Registry::encode`].
#[derive(Clone, Debug, Default)]
pub struct Registry {
    families: Arc<Families>,
}

#[derive(Debug)]
struct Families {
    requests: requests::Requests,
    transport: transport::Transport,
    plugin: plugin::Plugin,
    runtime: runtime::Runtime,
}

impl Default for Families {
    fn default() -> Self {
        Self {
            requests: requests::Requests::new(),
            transport: transport::Transport::new(),
            plugin: plugin::Plugin::new(),
            runtime: runtime::Runtime::new(),
        }
    }
}

impl Registry {
    /// Creates families without series.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns hooks that report to this registry.
    pub fn hooks(&self) -> Hooks {
        Hooks::from(self)
    }

    /// Encodes all series in the `OpenMetrics` text format.
    #[expect(
        clippy::missing_panics_doc,
        reason = "memory takes all that is written to it"
    )]
    pub fn encode(&self) -> String {
        let mut root = prometheus_client::registry::Registry::default();
        root.register_collector(Box::new(self.clone()));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &root)
            .expect("a string takes all that is written to it");
        text
    }

    fn requests(&self) -> &requests::Requests {
        &self.families.requests
    }

    fn transport(&self) -> &transport::Transport {
        &self.families.transport
    }

    fn plugin(&self) -> &plugin::Plugin {
        &self.families.plugin
    }

    fn runtime(&self) -> &runtime::Runtime {
        &self.families.runtime
    }
}

impl From<&Registry> for Hooks {
    /// Every hook reports to the registry.
    fn from(registry: &Registry) -> Self {
        Self::all(registry)
    }
}

impl Collector for Registry {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.requests().encode(&mut encoder)?;
        self.transport().encode(&mut encoder)?;
        self.plugin().encode(&mut encoder)?;
        self.runtime().encode(&mut encoder)
    }
}
