//! The adapter for OpenTelemetry's metrics API.
//!
//! The instruments are named so that a Prometheus exporter, which appends units and `_total`,
//! results in the names of the Prometheus adapter: `rest_client_request_duration` with the unit `s`
//! becomes `rest_client_request_duration_seconds`. Attributes have the names of the labels there.
//!
//! [`SemanticConventions`] has OpenTelemetry's own names of the requests, for use beside these or
//! instead.
//!
//! The cost of a measurement depends on the SDK. The adapter itself clones references for most
//! attributes and allocates for status codes.

mod conventions;
mod requests;
mod runtime;
mod transport;

use std::sync::Arc;

use opentelemetry::metrics::{Counter, Gauge, Histogram, Meter, UpDownCounter};

pub use conventions::SemanticConventions;

use crate::Hooks;

/// All instruments of one meter, shared by all clones.
///
/// ```
/// use kube_client_metrics::OpenTelemetry;
///
/// let adapter = OpenTelemetry::new(&opentelemetry::global::meter("my-controller"));
/// # fn example(config: kube::Config, adapter: OpenTelemetry) -> Result<(), kube_client_metrics::Error> {
/// let client = kube_client_metrics::client(config, &adapter)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct OpenTelemetry {
    instruments: Arc<Instruments>,
}

#[derive(Debug)]
struct Instruments {
    requests: requests::Requests,
    transport: transport::Transport,
    runtime: runtime::Runtime,
}

impl OpenTelemetry {
    /// Creates the instruments.
    pub fn new(meter: &Meter) -> Self {
        Self {
            instruments: Arc::new(Instruments {
                requests: requests::Requests::new(meter),
                transport: transport::Transport::new(meter),
                runtime: runtime::Runtime::new(meter),
            }),
        }
    }

    /// Returns hooks that report to these instruments.
    pub fn hooks(&self) -> Hooks {
        Hooks::from(self)
    }
}

impl From<&OpenTelemetry> for Hooks {
    /// Every hook reports to these instruments.
    fn from(adapter: &OpenTelemetry) -> Self {
        Self::all(adapter)
    }
}

fn seconds(meter: &Meter, name: &'static str, bounds: &[f64]) -> Histogram<f64> {
    let builder = meter.f64_histogram(name).with_unit("s");
    builder.with_boundaries(bounds.to_vec()).build()
}

fn sizes(meter: &Meter, name: &'static str, unit: &'static str, bounds: &[f64]) -> Histogram<u64> {
    let builder = meter.u64_histogram(name).with_unit(unit);
    builder.with_boundaries(bounds.to_vec()).build()
}

fn counter(meter: &Meter, name: &'static str) -> Counter<u64> {
    meter.u64_counter(name).build()
}

fn level(meter: &Meter, name: &'static str) -> UpDownCounter<i64> {
    meter.i64_up_down_counter(name).build()
}

fn gauge(meter: &Meter, name: &'static str) -> Gauge<u64> {
    meter.u64_gauge(name).build()
}
