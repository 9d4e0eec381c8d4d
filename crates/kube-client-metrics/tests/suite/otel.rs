//! The instruments of OpenTelemetry, as an SDK receives them.

use std::borrow::Cow;
use std::fmt::Display;
use std::sync::{Arc, Mutex};

use kube_client_metrics::OpenTelemetry;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{
    Counter, Gauge, Histogram, HistogramBuilder, InstrumentBuilder, InstrumentProvider, Meter,
    SyncInstrument, UpDownCounter,
};

use crate::families::call_every_hook;

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
