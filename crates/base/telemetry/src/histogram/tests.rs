use super::*;
use crate::exposition::Format;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Route(&'static str, &'static str);

impl LabelSet for Route {
    fn visit(&self, visit: &mut dyn FnMut(&str, &str)) {
        visit("verb", self.0);
        visit("path", self.1);
    }
}

fn spec(native: Option<NativeOptions>) -> HistogramSpec {
    HistogramSpec {
        name: "wait_duration_seconds",
        help: "Time \"it\" waited",
        bounds: &[0.25, 1.0, 10.0],
        native,
    }
}

fn family(native: Option<NativeOptions>) -> (Metrics, HistogramFamily<Route>) {
    let mut metrics = Metrics::new();
    let family = HistogramFamily::register(&mut metrics, spec(native));
    (metrics, family)
}

const MILLISECOND: Duration = Duration::from_millis(1);

#[test]
fn text_is_as_the_library_would_write_it() {
    let (mut metrics, family) = family(None);
    let gauge = prometheus_client::metrics::gauge::Gauge::<i64>::default();
    metrics.root().register("up", "Up", gauge.clone());
    metrics.root().register("aaa", "First", gauge);
    family.observe(&Route("GET", "/b"), 250 * MILLISECOND);
    family.observe(&Route("GET", "/b"), 251 * MILLISECOND);
    family.observe(&Route("GET", "/a\"\\\n"), Duration::from_secs(11));
    let registry = metrics.freeze();
    let text = |format| String::from_utf8(registry.encode(format).unwrap()).unwrap();
    insta::assert_snapshot!(text(Format::Prometheus));
    insta::assert_snapshot!(text(Format::OpenMetrics));
    assert_eq!(
        Format::Prometheus.render(&text(Format::OpenMetrics)),
        text(Format::Prometheus).as_bytes()
    );
    assert_eq!(
        registry.families().unwrap(),
        ["gauge aaa", "gauge up", "histogram wait_duration_seconds"]
    );
}

#[test]
fn a_family_without_series_is_left_out() {
    let (metrics, family) = family(Some(NativeOptions::default()));
    assert!(family.is_empty());
    let registry = metrics.freeze();
    assert_eq!(registry.encode(Format::Prometheus).unwrap(), b"");
    assert_eq!(registry.encode(Format::OpenMetrics).unwrap(), b"# EOF\n");
    assert_eq!(registry.encode(Format::Protobuf).unwrap(), b"");
    family.observe_times(&Route("", ""), MILLISECOND, 0);
    assert!(family.is_empty());
    family.observe(&Route("", ""), MILLISECOND);
    assert_eq!(family.clone().len(), 1);
}

#[test]
fn a_series_is_exposed_until_it_is_removed() {
    let (metrics, family) = family(None);
    let registry = metrics.freeze();
    let count = || {
        let text = String::from_utf8(registry.encode(Format::Prometheus).unwrap()).unwrap();
        let line = text.lines().find(|line| line.contains("_count{"))?;
        line.rsplit(' ').next()?.parse::<u64>().ok()
    };
    let series = family.series(&Route("GET", "/a"));
    assert_eq!(count(), Some(0));
    series.observe(MILLISECOND);
    family.observe(&Route("GET", "/a"), MILLISECOND);
    assert_eq!(count(), Some(2));
    family.remove(&Route("GET", "/a"));
    series.observe(MILLISECOND);
    assert_eq!(count(), None);
}

#[test]
fn protobuf_is_negotiated_only_if_there_are_native_buckets() {
    let accept = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
    let headers = http::HeaderMap::from_iter([(
        http::header::ACCEPT,
        http::HeaderValue::from_static(accept),
    )]);
    let (classic, _family) = family(None);
    assert_eq!(classic.freeze().negotiate(&headers), Format::OpenMetrics);
    let (native, _family) = family(Some(NativeOptions::default()));
    let native = native.freeze();
    assert_eq!(native.negotiate(&headers), Format::Protobuf);
    assert_eq!(
        native.negotiate(&http::HeaderMap::new()),
        Format::Prometheus
    );
}

#[test]
fn each_series_is_read_consistently() {
    // Classic and native buckets, count and sum, during concurrent observations.
    let (metrics, family) = family(Some(NativeOptions::default()));
    let registry = metrics.freeze();
    let writers: Vec<_> = (0..2)
        .map(|_| {
            let family = family.clone();
            std::thread::spawn(move || {
                for _ in 0..2_000 {
                    family.observe(&Route("GET", "/"), Duration::from_secs(1));
                }
            })
        })
        .collect();
    for _ in 0..20 {
        for source in registry.histograms() {
            source.visit(&mut |metric| {
                let Value::Histogram {
                    count,
                    sum,
                    buckets,
                    native,
                } = metric.value
                else {
                    panic!("{metric:?}");
                };
                let native = native.unwrap().positive().iter();
                assert_eq!(native.map(|(_, count)| count).sum::<u64>(), count);
                assert_eq!(buckets[2].1, count);
                #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
                let seconds = count as f64;
                assert!((sum - seconds).abs() < f64::EPSILON);
            });
        }
    }
    for writer in writers {
        writer.join().unwrap();
    }
}
