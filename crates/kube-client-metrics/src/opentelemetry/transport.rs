//! Connections, exec plugins and client certificates.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter, ObservableGauge};
use parking_lot::Mutex;

use super::{OpenTelemetry, counter, seconds};
use crate::bounds;
use crate::hooks::{
    CaReload, ClientCertExpiry, ClientCertRotationAge, ConnectLatency, ConnectOutcome,
    ExecCallStatus, ExecPluginCalls, ResolverLatency, TransportCaReloads,
};

#[derive(Debug)]
pub(super) struct Transport {
    resolver: Histogram<f64>,
    connect: Histogram<f64>,
    ca_reloads: Counter<u64>,
    exec_calls: Counter<u64>,
    rotation_age: Histogram<f64>,
    expiry: Arc<Mutex<Expiry>>,
    /// Kept alive so that its callback is called.
    _ttl: ObservableGauge<f64>,
}

/// The last reported expiry of certificates.
#[derive(Clone, Copy, Debug, Default)]
enum Expiry {
    #[default]
    Untold,
    /// There is no certificate.
    Never,
    At(SystemTime),
}

impl Transport {
    pub(super) fn new(meter: &Meter) -> Self {
        let expiry: Arc<Mutex<Expiry>> = Arc::default();
        let asked = Arc::clone(&expiry);
        let ttl = meter.f64_observable_gauge("rest_client_exec_plugin_ttl");
        Self {
            resolver: seconds(
                meter,
                "rest_client_dns_resolution_duration",
                &bounds::RESOLVER,
            ),
            connect: seconds(meter, "kube_client_connect_duration", &bounds::LATENCY),
            ca_reloads: counter(meter, "rest_client_transport_ca_reload"),
            exec_calls: counter(meter, "rest_client_exec_plugin_call"),
            // client-go's name has no unit, so the instrument has none either.
            rotation_age: meter
                .f64_histogram("rest_client_exec_plugin_certificate_rotation_age")
                .with_boundaries(bounds::CERTIFICATE_AGE.to_vec())
                .build(),
            expiry,
            _ttl: ttl
                .with_unit("s")
                .with_callback(move |observer| {
                    let expiry = *asked.lock();
                    match expiry {
                        Expiry::Untold => {}
                        Expiry::Never => observer.observe(f64::INFINITY, &[]),
                        Expiry::At(at) => {
                            observer.observe(seconds_until(at, SystemTime::now()), &[]);
                        }
                    }
                })
                .build(),
        }
    }
}

impl OpenTelemetry {
    fn transport(&self) -> &Transport {
        &self.instruments.transport
    }
}

impl ResolverLatency for OpenTelemetry {
    fn observe(&self, host: &str, latency: Duration) {
        let host = KeyValue::new("host", host.to_owned());
        let instrument = &self.transport().resolver;
        instrument.record(latency.as_secs_f64(), &[host]);
    }
}

impl ConnectLatency for OpenTelemetry {
    fn observe(&self, host: &str, outcome: ConnectOutcome, latency: Duration) {
        let host = KeyValue::new("host", host.to_owned());
        let outcome = KeyValue::new("outcome", outcome.as_str());
        let instrument = &self.transport().connect;
        instrument.record(latency.as_secs_f64(), &[host, outcome]);
    }
}

impl TransportCaReloads for OpenTelemetry {
    fn increment(&self, reload: CaReload) {
        let result = KeyValue::new("result", reload.result());
        let reason = KeyValue::new("reason", reload.reason());
        self.transport().ca_reloads.add(1, &[result, reason]);
    }
}

impl ExecPluginCalls for OpenTelemetry {
    fn increment(&self, exit_code: i32, status: ExecCallStatus) {
        let code = KeyValue::new("code", exit_code.to_string());
        let status = KeyValue::new("call_status", status.as_str());
        self.transport().exec_calls.add(1, &[code, status]);
    }
}

impl ClientCertExpiry for OpenTelemetry {
    fn set(&self, expiry: Option<SystemTime>) {
        let known = &self.transport().expiry;
        *known.lock() = expiry.map_or(Expiry::Never, Expiry::At);
    }
}

impl ClientCertRotationAge for OpenTelemetry {
    fn observe(&self, age: Duration) {
        self.transport().rotation_age.record(age.as_secs_f64(), &[]);
    }
}

fn seconds_until(at: SystemTime, now: SystemTime) -> f64 {
    match at.duration_since(now) {
        Ok(left) => left.as_secs_f64(),
        Err(past) => -past.duration().as_secs_f64(),
    }
}
