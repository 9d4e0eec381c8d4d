//! The instruments of OpenTelemetry, as an SDK receives them.

use std::borrow::Cow;
use std::fmt::Display;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube_client_metrics::opentelemetry::SemanticConventions;
use kube_client_metrics::{Classifier, MetricsLayer, OpenTelemetry};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{
    Counter, Gauge, Histogram, HistogramBuilder, InstrumentBuilder, InstrumentProvider, Meter,
    SyncInstrument, UpDownCounter,
};

use crate::families::call_every_hook;
use crate::harness::{Broken, Script, exchange, request, respond};

/// An SDK that records all instruments and measurements.
#[derive(Clone, Default)]
struct Sdk(Arc<Mutex<Vec<String>>>);

struct Instrument {
    name: String,
    lines: Sdk,
}

impl Sdk {
    fn instrument(
        &self,
        kind: &str,
        name: &str,
        unit: Option<&Cow<'static, str>>,
    ) -> Arc<Instrument> {
        let unit = unit.map(|unit| format!(" in {unit}")).unwrap_or_default();
        Arc::new(Instrument {
            name: format!("{kind} {name}{unit}"),
            lines: self.clone(),
        })
    }
}

impl<T: Display> SyncInstrument<T> for Instrument {
    fn measure(&self, measurement: T, attributes: &[KeyValue]) {
        let attributes: Vec<String> = attributes
            .iter()
            .map(|pair| format!("{}={}", pair.key, pair.value))
            .collect();
        let line = format!("{} {measurement} {}", self.name, attributes.join(" "));
        self.lines.0.lock().unwrap().push(line);
    }
}

impl InstrumentProvider for Sdk {
    fn u64_counter(&self, builder: InstrumentBuilder<'_, Counter<u64>>) -> Counter<u64> {
        Counter::new(self.instrument("counter", &builder.name, builder.unit.as_ref()))
    }

    fn i64_up_down_counter(
        &self,
        builder: InstrumentBuilder<'_, UpDownCounter<i64>>,
    ) -> UpDownCounter<i64> {
        UpDownCounter::new(self.instrument("level", &builder.name, builder.unit.as_ref()))
    }

    fn u64_gauge(&self, builder: InstrumentBuilder<'_, Gauge<u64>>) -> Gauge<u64> {
        Gauge::new(self.instrument("gauge", &builder.name, builder.unit.as_ref()))
    }

    fn f64_gauge(&self, builder: InstrumentBuilder<'_, Gauge<f64>>) -> Gauge<f64> {
        Gauge::new(self.instrument("gauge", &builder.name, builder.unit.as_ref()))
    }

    fn f64_histogram(&self, builder: HistogramBuilder<'_, Histogram<f64>>) -> Histogram<f64> {
        assert!(builder.boundaries.is_some_and(|bounds| bounds.len() > 5));
        Histogram::new(self.instrument("histogram", &builder.name, builder.unit.as_ref()))
    }

    fn u64_histogram(&self, builder: HistogramBuilder<'_, Histogram<u64>>) -> Histogram<u64> {
        assert!(builder.boundaries.is_some_and(|bounds| bounds.len() > 5));
        Histogram::new(self.instrument("histogram", &builder.name, builder.unit.as_ref()))
    }
}

#[tokio::test(start_paused = true)]
async fn instruments_units_and_attributes() {
    let sdk = Sdk::default();
    let adapter = OpenTelemetry::new(&Meter::new(Arc::new(sdk.clone())));
    call_every_hook(&adapter.hooks()).await;
    let lines = sdk.0.lock().unwrap().join("\n");
    insta::assert_snapshot!(lines);
}

/// The names and attributes of the conventions for HTTP clients, version 1.38.
#[tokio::test(start_paused = true)]
async fn requests_by_the_semantic_conventions() {
    let sdk = Sdk::default();
    let adapter = SemanticConventions::new(&Meter::new(Arc::new(sdk.clone())));
    let layer = MetricsLayer::new(&adapter, Classifier::new("cluster.example:6443"));
    for (uri, status) in [
        ("/api/v1/namespaces/space/pods/object", 404),
        ("/api/v1/pods", 0),
    ] {
        let service = tower::Layer::layer(
            &layer,
            tower::service_fn(move |_| async move {
                tokio::time::sleep(Duration::from_millis(250)).await;
                match status {
                    0 => Err(Broken),
                    status => Ok(respond(status, Script::text("no such"))),
                }
            }),
        );
        exchange(service, request("GET", uri)).await;
    }
    adapter
        .hooks()
        .resolver_latency
        .observe("cluster.example", Duration::from_millis(2));
    let lines = sdk.0.lock().unwrap().clone();
    let pod = "http.request.method=GET server.address=cluster.example server.port=6443 \
               url.template=/api/v1/namespaces/{namespace}/pods/{name}";
    let pods = "http.request.method=GET server.address=cluster.example server.port=6443 \
                url.template=/api/v1/pods";
    let not_found = "http.response.status_code=404 error.type=404";
    assert_eq!(
        lines,
        [
            format!("histogram http.client.request.duration in s 0.25 {pod} {not_found}"),
            format!("histogram http.client.request.body.size in By 0 {pod} {not_found}"),
            format!("histogram http.client.response.body.size in By 7 {pod}"),
            format!("histogram http.client.request.duration in s 0.25 {pods} error.type=_OTHER"),
            format!("histogram http.client.request.body.size in By 0 {pods} error.type=_OTHER"),
            "histogram dns.lookup.duration in s 0.002 dns.question.name=cluster.example".to_owned(),
        ]
    );
}
