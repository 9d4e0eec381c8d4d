//! The protobuf exposition, as Prometheus itself decodes it (`e2e/vectors/telemetry`).

use std::time::Duration;

use kubevitals_telemetry::exposition::Format;
use kubevitals_telemetry::{
    HistogramFamily, HistogramSpec, LabelSet, Metrics, NativeOptions, SharedRegistry,
};
use prometheus_client::metrics::{
    counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info,
};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Path(&'static str);

impl LabelSet for Path {
    fn visit(&self, visit: &mut dyn FnMut(&str, &str)) {
        visit("path", self.0);
        visit("code", "200");
    }
}

/// One of everything.
fn registry() -> SharedRegistry {
    let mut metrics = Metrics::new();
    let counters = Family::<Vec<(&str, &str)>, Counter>::default();
    counters
        .get_or_create(&vec![("kind", "a\"\\\né")])
        .inc_by(7);
    counters.get_or_create(&vec![("kind", "b")]).inc_by(1 << 40);
    let gauge = Gauge::<f64, std::sync::atomic::AtomicU64>::default();
    gauge.set(-0.125);
    let classic = Histogram::new([0.5, 1.0]);
    classic.observe(0.75);
    let root = metrics.root();
    root.register("things", "Things \\ \"counted\"", counters);
    root.register("level", "A level", gauge);
    root.register("classic_seconds", "Not native", classic);
    root.register("program", "Which one", Info::new([("version", "1")]));
    let spec = |name, native| HistogramSpec {
        name,
        help: "Waits",
        bounds: &[0.5, 1.0, 60.0],
        native,
    };
    let coarse = NativeOptions {
        max_buckets: 4,
        ..NativeOptions::default()
    };
    let families = [
        spec("own_classic_duration_seconds", None),
        spec(
            "own_native_duration_seconds",
            Some(NativeOptions::default()),
        ),
        spec("own_coarse_duration_seconds", Some(coarse)),
    ]
    .map(|spec| HistogramFamily::register(&mut metrics, spec));
    for family in &families {
        for millis in [
            0, 1, 250, 250, 500, 999, 1_000, 1_001, 7_000, 90_000, 4_000_000,
        ] {
            family.observe(&Path("/a"), Duration::from_millis(millis));
        }
        family.observe_times(&Path("/z\"\\\n"), Duration::ZERO, 3);
    }
    metrics.freeze()
}

#[test]
fn prometheus_decodes_the_protobuf_exposition() {
    let ours = registry().encode(Format::Protobuf).unwrap();
    if std::env::var_os("KUBEVITALS_WRITE_VECTORS").is_some() {
        std::fs::write("tests/vectors/exposition.pb", &ours).unwrap();
    }
    let decoded = include_bytes!("../vectors/exposition.pb");
    assert!(
        ours == decoded,
        "differs from what Prometheus decoded: see tests/vectors/README.md"
    );
    let read = include_str!("../vectors/exposition.txt");
    let (server, library) = read.split_once("# expfmt").unwrap();
    let (_, text) = library.split_once('\n').unwrap();
    // Go's library converts it to the same text as ours.
    let ours = registry().encode(Format::Prometheus).unwrap();
    assert_eq!(text, String::from_utf8(ours).unwrap());
    // The server also decodes the native buckets, and found them valid.
    let native: Vec<&str> = server
        .lines()
        .filter(|line| line.contains(" schema "))
        .collect();
    insta::assert_snapshot!(native.join("\n"));
}
