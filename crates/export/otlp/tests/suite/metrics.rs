//! Data points over real sockets.

use std::time::Duration;

use kubevitals_otlp::{
    MetricExporter, OtlpClient, Resource, Settings, SettingsSource, Signal, metric_sink_config,
};
use kubevitals_sim::otlp::{ReceivedValue, Reply};
use kubevitals_sink::{
    Attributes, DataPoint, Distribution, DropReason, Measurement, Number, Sink, SinkConfig,
    SinkMetrics,
};
use serde_json::json;
use tokio::time::timeout;

use crate::support::{DEADLINE, at, receiver};

fn settings(address: std::net::SocketAddr, variables: &[(&str, &str)]) -> Settings {
    let source = SettingsSource {
        endpoint: Some(format!("http://{address}")),
        ..SettingsSource::default()
    };
    let get = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    Settings::read(Signal::METRICS, &source, get)
        .unwrap()
        .unwrap()
}

fn points() -> Vec<DataPoint> {
    let attributes = |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter();
        Attributes::new(pairs.map(|(name, value)| ((*name).into(), (*value).into())))
    };
    let gauge = DataPoint {
        name: "k8s.node.condition.status".into(),
        unit: "{node}".into(),
        attributes: attributes(&[
            ("k8s.node.name", "n1"),
            ("k8s.node.condition.type", "Ready"),
        ]),
        timestamp: at(9),
        measurement: Measurement::Gauge(Number::Integer(1)),
    };
    let counter = DataPoint {
        name: "k8s.container.restart.count".into(),
        unit: "{restart}".into(),
        measurement: Measurement::Counter {
            start: at(1),
            total: Number::Integer(7),
        },
        ..gauge.clone()
    };
    let histogram = DataPoint {
        name: "http.client.request.duration".into(),
        unit: "s".into(),
        attributes: attributes(&[("server.address", "web")]),
        measurement: Measurement::Distribution {
            start: at(1),
            value: Distribution::new([0.5].into(), vec![2, 1], 1.5).unwrap(),
        },
        ..gauge.clone()
    };
    vec![gauge, counter, histogram]
}

/// Sends the points and returns the records that were exported and dropped.
async fn send(settings: Settings, points: Vec<DataPoint>) -> (u64, u64, SinkMetrics) {
    kubevitals_tls::install_crypto_provider();
    let config = SinkConfig {
        linger: Duration::from_millis(1),
        ..metric_sink_config()
    };
    let metrics = SinkMetrics::unregistered();
    let (sink, worker) = Sink::new(config, metrics.clone());
    let client = OtlpClient::new(settings, None).unwrap();
    let exporter = MetricExporter::new(client, Resource::new("test-0", |_| None));
    let worker = tokio::spawn(worker.run(exporter));
    for point in points {
        sink.push(point);
    }
    let counts = timeout(DEADLINE, sink.shutdown(DEADLINE)).await.unwrap();
    worker.await.unwrap();
    (counts.exported, counts.dropped, metrics)
}

#[tokio::test]
async fn points_arrive_whole_over_both_protocols() {
    for (protocol, path) in [
        ("http/protobuf", "/v1/metrics"),
        (
            "grpc",
            "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
        ),
    ] {
        let receiver = receiver().await;
        let settings = settings(
            receiver.address,
            &[("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", protocol)],
        );
        let (exported, dropped, _) = send(settings, points()).await;
        assert_eq!((exported, dropped), (3, 0), "{protocol}");
        let received = receiver.received();
        assert!(received.requests.iter().all(|request| request.path == path));
        let mut points = received.points;
        points.sort_by(|a, b| a.name.cmp(&b.name));
        let [duration, restarts, condition] = &points[..] else {
            panic!("{points:?}");
        };
        let nanos = |second| u64::try_from(at(second).unix_millis()).unwrap() * 1_000_000;
        assert_eq!(condition.unit, "{node}");
        assert_eq!(condition.resource["k8s.node.name"], "n1");
        assert_eq!(condition.attributes["k8s.node.condition.type"], "Ready");
        assert_eq!(condition.value, ReceivedValue::Gauge(json!(1)));
        assert_eq!(
            (condition.start_unix_nano, condition.time_unix_nano),
            (0, nanos(9))
        );
        assert_eq!(restarts.value, ReceivedValue::Sum(json!(7)));
        assert_eq!(
            (restarts.start_unix_nano, restarts.time_unix_nano),
            (nanos(1), nanos(9))
        );
        assert_eq!(duration.unit, "s");
        assert_eq!(duration.attributes["server.address"], "web");
        assert_eq!(duration.resource.get("k8s.node.name"), None);
        assert_eq!(duration.scope, "kubevitals");
        let expected = ReceivedValue::Histogram {
            count: 3,
            sum: 1.5,
            bucket_counts: vec![2, 1],
            bounds: vec![0.5],
            exemplars: Vec::new(),
        };
        assert_eq!(duration.value, expected);
    }
}

#[tokio::test]
async fn points_that_a_receiver_rejects_are_counted_and_not_sent_again() {
    let receiver = receiver().await;
    receiver.reply([Reply::Partial(2, "no such metric".to_owned())]);
    let (exported, dropped, metrics) = send(settings(receiver.address, &[]), points()).await;
    assert_eq!((exported, dropped), (1, 2));
    assert_eq!(metrics.dropped(DropReason::Rejected).get(), 2);
    assert_eq!(receiver.received().requests.len(), 1);
}

#[tokio::test]
async fn points_are_retried_by_the_rules_of_traces() {
    let receiver = receiver().await;
    let soon = || vec![("retry-after", "0".to_owned())];
    receiver.reply([Reply::Http(429, soon()), Reply::Http(503, soon())]);
    let (exported, dropped, metrics) = send(settings(receiver.address, &[]), points()).await;
    assert_eq!((exported, dropped), (3, 0));
    assert_eq!(metrics.retries().get(), 2);
    assert_eq!(receiver.received().points.len(), 3);
    // Not retryable, by the specification.
    receiver.reply([Reply::Http(500, Vec::new())]);
    let (exported, dropped, _) = send(settings(receiver.address, &[]), points()).await;
    assert_eq!((exported, dropped), (0, 3));
}

#[test]
fn metrics_have_variables_of_their_own() {
    let read = |variables: &[(&str, &str)]| {
        let get = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Settings::read(Signal::METRICS, &SettingsSource::default(), get).unwrap()
    };
    let general = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a.test:4318");
    let url = |settings: Option<Settings>| settings.map(|settings| settings.url.to_string());
    assert_eq!(
        url(read(&[general])).as_deref(),
        Some("http://a.test:4318/v1/metrics")
    );
    let own = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://b.test/m");
    assert_eq!(
        url(read(&[general, own])).as_deref(),
        Some("http://b.test/m")
    );
    assert_eq!(
        url(read(&[general, ("OTEL_METRICS_EXPORTER", "none")])),
        None
    );
    let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t.test");
    assert_eq!(url(read(&[traces])), None);
}
