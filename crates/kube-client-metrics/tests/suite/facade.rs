//! The measurements of the `metrics` facade, as a recorder receives them.

use std::sync::{Arc, Mutex};

use kube_client_metrics::{Facade, Registry};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

use crate::families::call_every_hook;

/// A recorder of all measurements, as text.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<Vec<String>>>);

struct Series {
    name: String,
    calls: Calls,
}

impl Calls {
    fn series(&self, kind: &str, key: &Key) -> Arc<Series> {
        let labels: Vec<String> = key
            .labels()
            .map(|label| format!("{}={}", label.key(), label.value()))
            .collect();
        Arc::new(Series {
            name: format!("{kind} {} {}", key.name(), labels.join(" ")),
            calls: self.clone(),
        })
    }
}

impl Series {
    fn note(&self, what: &str) {
        let line = format!("{} {what}", self.name);
        self.calls.0.lock().unwrap().push(line);
    }
}

impl CounterFn for Series {
    fn increment(&self, value: u64) {
        self.note(&format!("+{value}"));
    }

    fn absolute(&self, value: u64) {
        self.note(&format!("={value}"));
    }
}

impl GaugeFn for Series {
    fn increment(&self, value: f64) {
        self.note(&format!("{value:+}"));
    }

    fn decrement(&self, value: f64) {
        self.note(&format!("{:+}", -value));
    }

    fn set(&self, value: f64) {
        self.note(&format!("={value}"));
    }
}

impl HistogramFn for Series {
    fn record(&self, value: f64) {
        self.note(&value.to_string());
    }
}

impl Recorder for Calls {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.series("counter", key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.series("gauge", key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.series("histogram", key))
    }
}

fn call(calls: &Calls) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    metrics::with_local_recorder(calls, || {
        runtime.block_on(call_every_hook(&Facade.hooks()));
    });
}

#[test]
fn measurements_have_the_names_and_labels_of_the_registry() {
    let calls = Calls::default();
    call(&calls);
    insta::assert_snapshot!(calls.0.lock().unwrap().join("\n"));
}

#[tokio::test(start_paused = true)]
async fn the_bounds_of_every_histogram_are_known() {
    let registry = Registry::new();
    call_every_hook(&registry.hooks()).await;
    for family in registry.gather() {
        let kube_client_metrics::registry::Value::Histogram(buckets) = &family.series[0].value
        else {
            continue;
        };
        let known = Facade::BUCKETS
            .iter()
            .find(|(name, _)| *name == family.name);
        let bounds: Vec<f64> = buckets.counts.iter().map(|(bound, _)| *bound).collect();
        let (_, known) = known.unwrap_or_else(|| panic!("no bounds of {}", family.name));
        assert_eq!(bounds.split_last().unwrap().1, *known, "{}", family.name);
    }
}
