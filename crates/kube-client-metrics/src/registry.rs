//! The Prometheus adapter: client-go's families, with the names, labels and buckets that dashboards
//! expect.
//!
//! It depends on no metrics library. It [encodes](Registry::encode_as) the text formats itself, and
//! is a collector of two libraries: of `prometheus-client` and of `prometheus` (features of the
//! same names). [`Registry::gather`] is for all others.
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
//! | `rest_client_transport_ca_reload_total` | counter | `result`, `reason` |
//! | `workqueue_depth`, `workqueue_unfinished_work_seconds`, `workqueue_longest_running_processor_seconds` | gauge | `name` |
//! | `workqueue_adds_total`, `workqueue_retries_total` | counter | `name` |
//! | `workqueue_queue_duration_seconds`, `workqueue_work_duration_seconds` | histogram | `name` |
//! | `leader_election_master_status` | gauge | `name` |
//! | `leader_election_slowpath_total` | counter | `name` |
//! | `informer_processing_latency_seconds` | histogram | `name`, `group`, `version`, `resource` |
//! | `informer_store_resource_version` | gauge | `name`, `group`, `version`, `resource` |
//!
//! controller-runtime's families of controllers:
//!
//! | family | type | labels |
//! |---|---|---|
//! | `controller_runtime_reconcile_total` | counter | `controller`, `result` |
//! | `controller_runtime_reconcile_errors_total`, `controller_runtime_reconcile_panics_total` | counter | `controller` |
//! | `controller_runtime_reconcile_time_seconds` | histogram | `controller` |
//! | `controller_runtime_active_workers`, `controller_runtime_max_concurrent_reconciles` | gauge | `controller` |
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
//! | `kube_client_reflector_*` | | `name` |
//!
//! A series appears with its first value; those of a queue and of a controller with their creation,
//! as in Go.

mod buckets;
mod controllers;
mod family;
mod labels;
mod metric;
mod plugin;
#[cfg(feature = "prometheus")]
mod prometheus;
#[cfg(feature = "prometheus-client")]
mod prometheus_client;
mod requests;
mod runtime;
mod text;
mod transport;

use std::sync::Arc;

pub use text::Format;

use crate::Hooks;

/// All families, shared by all clones. Any number of clients may report to one registry.
///
/// A program without a metrics library responds to `/metrics` with [`Registry::encode_as`].
#[cfg_attr(
    feature = "prometheus-client",
    doc = "\nFor `prometheus-client` it is a collector: add a clone to the registry that your program exposes.

```
let registry = kube_client_metrics::Registry::new();
let mut exposed = prometheus_client::registry::Registry::default();
exposed.register_collector(Box::new(registry.clone()));
```"
)]
#[cfg_attr(
    feature = "prometheus",
    doc = "\nFor `prometheus` it is a collector too.

```
let registry = kube_client_metrics::Registry::new();
prometheus::default_registry().register(Box::new(registry.clone()))?;
# Ok::<(), prometheus::Error>(())
```"
)]
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
    controllers: controllers::Controllers,
}

/// All series of one name.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MetricFamily {
    /// The name; that of a counter without its suffix `_total`.
    pub name: &'static str,
    /// What it means, without a full stop.
    pub help: &'static str,
    /// The type of its values.
    pub kind: Kind,
    /// The series, in the order of their labels.
    pub series: Vec<Series>,
}

/// One series.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Series {
    /// Names and values of the labels.
    pub labels: Vec<(&'static str, String)>,
    /// The current value.
    pub value: Value,
}

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[expect(missing_docs, reason = "they are named like the types")]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// The value of a series.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Of a counter.
    Counter(u64),
    /// Of a gauge that is a whole number.
    Integer(i64),
    /// Of another gauge.
    Gauge(f64),
    /// Of a histogram.
    Histogram(Buckets),
}

/// The value of a histogram.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Buckets {
    /// The upper bounds in order, the last of which is infinite, and the number of observations in
    /// each bucket alone.
    pub counts: Vec<(f64, u64)>,
    /// The sum of all observations.
    pub sum: f64,
}

impl Default for Families {
    fn default() -> Self {
        Self {
            requests: requests::Requests::new(),
            transport: transport::Transport::new(),
            plugin: plugin::Plugin::new(),
            runtime: runtime::Runtime::new(),
            controllers: controllers::Controllers::new(),
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

    /// Returns all families that have series.
    pub fn gather(&self) -> Vec<MetricFamily> {
        let mut families = Vec::new();
        self.requests().gather(&mut families);
        self.transport().gather(&mut families);
        self.plugin().gather(&mut families);
        self.runtime().gather(&mut families);
        self.controllers().gather(&mut families);
        families
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

    fn controllers(&self) -> &controllers::Controllers {
        &self.families.controllers
    }
}

impl From<&Registry> for Hooks {
    /// Every hook reports to the registry.
    fn from(registry: &Registry) -> Self {
        Self::all(registry)
    }
}

impl Kind {
    /// Returns the type as it is written in the text formats.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

impl Buckets {
    /// Returns the number of all observations.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }
}
