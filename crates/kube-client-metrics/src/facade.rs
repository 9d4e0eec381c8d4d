//! The adapter for the [`metrics`] facade.
//!
//! Names and labels are those of the [`registry`](crate::registry). The facade has no buckets: give
//! an exporter those of [`Facade::BUCKETS`], or it makes summaries of histograms.
//!
//! The recorder is looked up with each measurement, so it may be installed later. A measurement
//! allocates for its labels; its cost depends on the recorder.

mod requests;
mod runtime;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use metrics::{Label, SharedString};

use crate::hooks::{
    CaReload, ClientCertExpiry, ClientCertRotationAge, ConnectLatency, ConnectOutcome,
    ExecCallStatus, ExecPluginCalls, ResolverLatency, TransportCaReloads,
};
use crate::{Hooks, bounds};

/// Reports to the recorder that the program has installed.
///
/// ```
/// use kube_client_metrics::Facade;
///
/// # fn example(config: kube::Config) -> Result<(), kube_client_metrics::Error> {
/// let client = kube_client_metrics::client(config, &Facade)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Facade;

impl Facade {
    /// The bounds of each histogram: client-go's where it has the family.
    pub const BUCKETS: [(&'static str, &'static [f64]); 17] = [
        ("rest_client_request_duration_seconds", &bounds::LATENCY),
        (
            "rest_client_rate_limiter_duration_seconds",
            &bounds::LATENCY,
        ),
        ("rest_client_request_size_bytes", &bounds::SIZE),
        ("rest_client_response_size_bytes", &bounds::SIZE),
        (
            "rest_client_dns_resolution_duration_seconds",
            &bounds::RESOLVER,
        ),
        (
            "rest_client_exec_plugin_certificate_rotation_age",
            &bounds::CERTIFICATE_AGE,
        ),
        ("kube_client_request_duration_seconds", &bounds::LATENCY),
        ("kube_client_stream_duration_seconds", &bounds::STREAM),
        ("kube_client_connect_duration_seconds", &bounds::LATENCY),
        (
            "kube_client_reflector_list_duration_seconds",
            &bounds::LATENCY,
        ),
        ("kube_client_reflector_list_items", &bounds::ITEMS),
        (
            "kube_client_reflector_watch_duration_seconds",
            &bounds::STREAM,
        ),
        ("kube_client_reflector_watch_items", &bounds::ITEMS),
        ("workqueue_queue_duration_seconds", &bounds::QUEUE),
        ("workqueue_work_duration_seconds", &bounds::QUEUE),
        (
            "controller_runtime_reconcile_time_seconds",
            &bounds::RECONCILE,
        ),
        ("informer_processing_latency_seconds", &bounds::INFORMER),
    ];

    /// Returns hooks that report to the facade.
    pub fn hooks(self) -> Hooks {
        Hooks::from(&self)
    }
}

impl From<&Facade> for Hooks {
    /// Every hook reports to the facade.
    fn from(facade: &Facade) -> Self {
        Self::all(facade)
    }
}

fn label(name: &'static str, value: impl Into<SharedString>) -> Label {
    Label::new(name, value)
}

fn count(name: &'static str, labels: Vec<Label>, by: u64) {
    metrics::counter!(name, labels).increment(by);
}

fn observe(name: &'static str, labels: Vec<Label>, value: Duration) {
    metrics::histogram!(name, labels).record(value);
}

#[expect(
    clippy::cast_precision_loss,
    reason = "sizes above 2^53 may be rounded"
)]
fn float(value: u64) -> f64 {
    value as f64
}

impl ResolverLatency for Facade {
    fn observe(&self, host: &str, latency: Duration) {
        let labels = vec![label("host", host.to_owned())];
        observe(
            "rest_client_dns_resolution_duration_seconds",
            labels,
            latency,
        );
    }
}

impl ConnectLatency for Facade {
    fn observe(&self, host: &str, outcome: ConnectOutcome, latency: Duration) {
        let labels = vec![
            label("host", host.to_owned()),
            label("outcome", outcome.as_str()),
        ];
        observe("kube_client_connect_duration_seconds", labels, latency);
    }
}

impl TransportCaReloads for Facade {
    fn increment(&self, reload: CaReload) {
        let labels = vec![
            label("result", reload.result()),
            label("reason", reload.reason()),
        ];
        count("rest_client_transport_ca_reload_total", labels, 1);
    }
}

impl ExecPluginCalls for Facade {
    fn increment(&self, exit_code: i32, status: ExecCallStatus) {
        let labels = vec![
            label("code", exit_code.to_string()),
            label("call_status", status.as_str()),
        ];
        count("rest_client_exec_plugin_call_total", labels, 1);
    }
}

/// A time in place of client-go's `rest_client_exec_plugin_ttl_seconds`: a time to live that is
/// set once would be wrong a second later.
impl ClientCertExpiry for Facade {
    fn set(&self, expiry: Option<SystemTime>) {
        let at = expiry.map_or(f64::INFINITY, |at| {
            at.duration_since(UNIX_EPOCH)
                .unwrap_or_default()
                .as_secs_f64()
        });
        metrics::gauge!("kube_client_exec_plugin_expiry_timestamp_seconds").set(at);
    }
}

impl ClientCertRotationAge for Facade {
    fn observe(&self, age: Duration) {
        let name = "rest_client_exec_plugin_certificate_rotation_age";
        observe(name, Vec::new(), age);
    }
}
