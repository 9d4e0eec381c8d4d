//! A sink that writes to a fake of Cloud Monitoring.

use std::net::SocketAddr;
use std::time::Duration;

use kubevitals_gcm::{
    Code, Credentials, GcmExporter, GcmHealth, GcmMetrics, GcmSettings, MetadataServer, Place,
    PointResult, sink_config,
};
use kubevitals_model::{SteppedClock, Timestamp};
use kubevitals_sim::google::{CloudMonitoring, ReceivedSeries};
use kubevitals_sink::{
    Attributes, DataPoint, DropReason, Measurement, Number, RetryPolicy, Sink, SinkConfig,
    SinkMetrics,
};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Longer than any test takes.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) const PROJECT: &str = "sim-project";

/// A sink with its exporter running.
pub(crate) struct Pipeline {
    pub(crate) sink: Sink<DataPoint>,
    pub(crate) drops: SinkMetrics,
    pub(crate) results: GcmMetrics,
    pub(crate) health: GcmHealth,
    worker: JoinHandle<()>,
}

/// What became of all points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Results {
    pub(crate) sent: u64,
    pub(crate) duplicate: u64,
    pub(crate) unknown: u64,
    pub(crate) rejected: u64,
    /// By the sink: queue full, retries exhausted, shutdown.
    pub(crate) dropped: u64,
}

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_unix_millis(1_794_773_520_000 + second * 1_000)
}

pub(crate) fn clock() -> SteppedClock {
    SteppedClock::new(at(0))
}

pub(crate) async fn backend(clock: &SteppedClock) -> CloudMonitoring {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    CloudMonitoring::start(address, None, PROJECT, clock.clock())
        .await
        .unwrap()
}

pub(crate) fn place() -> Place {
    Place {
        project: PROJECT.to_owned(),
        location: "europe-west1".to_owned(),
        cluster: Some("sim-cluster".to_owned()),
        instance: "prober-0".to_owned(),
    }
}

pub(crate) fn settings(address: SocketAddr) -> GcmSettings {
    GcmSettings {
        endpoint: format!("http://{address}").parse().unwrap(),
        timeout: Duration::from_secs(10),
        denied_delay: Duration::from_millis(5),
        ..GcmSettings::new("workload.googleapis.com/kube-prober", place())
    }
}

/// Delays of some milliseconds instead of seconds.
pub(crate) fn quick() -> SinkConfig {
    SinkConfig {
        linger: Duration::from_millis(1),
        retry: RetryPolicy {
            initial_delay: Duration::from_millis(1),
            max_delay: Duration::from_millis(2),
            ..sink_config().retry
        },
        ..sink_config()
    }
}

pub(crate) fn no_metadata() -> MetadataServer {
    MetadataServer::new(|_| Some("127.0.0.1:1".to_owned())).unwrap()
}

impl Pipeline {
    pub(crate) fn start(settings: GcmSettings, clock: &SteppedClock) -> Self {
        Self::start_as(
            settings,
            clock,
            Credentials::Anonymous,
            no_metadata(),
            quick(),
        )
    }

    pub(crate) fn start_as(
        settings: GcmSettings,
        clock: &SteppedClock,
        credentials: Credentials,
        metadata: MetadataServer,
        config: SinkConfig,
    ) -> Self {
        kubevitals_tls::install_crypto_provider();
        let (drops, results) = (SinkMetrics::unregistered(), GcmMetrics::unregistered());
        let exporter = GcmExporter::new(
            settings,
            credentials,
            metadata,
            None,
            clock.clock(),
            results.clone(),
        );
        let exporter = exporter.unwrap();
        let health = exporter.health();
        let (sink, worker) = Sink::new(config, drops.clone());
        Self {
            sink,
            drops,
            results,
            health,
            worker: tokio::spawn(worker.run(exporter)),
        }
    }

    pub(crate) fn push(&self, points: impl IntoIterator<Item = DataPoint>) -> u64 {
        points
            .into_iter()
            .map(|point| {
                self.sink.push(point);
                1
            })
            .sum()
    }

    pub(crate) fn results(&self) -> Results {
        let dropped = [
            DropReason::QueueFull,
            DropReason::RetriesExhausted,
            DropReason::Shutdown,
        ];
        let dropped = dropped.map(|reason| self.drops.dropped(reason).get());
        let results = Results {
            sent: self.results.points(PointResult::Sent).get(),
            duplicate: self.results.points(PointResult::Duplicate).get(),
            unknown: self.results.points(PointResult::Unknown).get(),
            rejected: Code::ALL.iter().map(|code| self.rejected(*code)).sum(),
            dropped: dropped.iter().sum(),
        };
        // The sink and the exporter count the same points.
        assert_eq!(
            self.drops.exported().get(),
            results.sent + results.duplicate
        );
        assert_eq!(
            self.drops.dropped(DropReason::Rejected).get(),
            results.rejected + results.unknown
        );
        results
    }

    pub(crate) fn rejected(&self, code: Code) -> u64 {
        self.results.rejected(code).get()
    }

    /// Writes what is queued, and returns what became of all points that were pushed.
    pub(crate) async fn flush(self, pushed: u64) -> Results {
        timeout(DEADLINE, self.sink.shutdown(DEADLINE))
            .await
            .unwrap();
        let Self {
            sink,
            drops,
            results,
            health,
            worker,
        } = self;
        worker.await.unwrap();
        let ended = Self {
            sink,
            drops,
            results,
            health,
            worker: tokio::spawn(async {}),
        };
        let results = ended.results();
        assert_eq!(results.total(), pushed, "{results:?}");
        results
    }
}

impl Results {
    pub(crate) fn total(self) -> u64 {
        self.sent + self.duplicate + self.unknown + self.rejected + self.dropped
    }

    pub(crate) fn sent(sent: u64) -> Self {
        Self {
            sent,
            ..Self::default()
        }
    }
}

pub(crate) fn attributes(pairs: &[(&str, &str)]) -> Attributes {
    let pairs = pairs.iter();
    Attributes::new(pairs.map(|(name, value)| ((*name).into(), (*value).into())))
}

/// A gauge of one of several series.
pub(crate) fn gauge(series: usize, second: i64) -> DataPoint {
    DataPoint {
        name: "cluster/node_condition".into(),
        unit: "{node}".into(),
        attributes: attributes(&[("nodepool", &format!("pool-{series}"))]),
        timestamp: at(second),
        measurement: Measurement::Gauge(Number::Integer(second)),
    }
}

pub(crate) fn counter(series: usize, start: i64, second: i64, total: i64) -> DataPoint {
    DataPoint {
        name: "addon/restart".into(),
        unit: "1".into(),
        measurement: Measurement::Counter {
            start: at(start),
            total: Number::Integer(total),
        },
        ..gauge(series, second)
    }
}

/// The series and the end of each point that was written, in seconds.
pub(crate) fn written(received: &ReceivedSeries) -> Vec<(String, i64)> {
    let point = |point: &kubevitals_sim::google::WrittenPoint| {
        let pool = point.metric_labels["nodepool"].clone();
        let second = (point.end.unix_millis() - at(0).unix_millis()) / 1_000;
        (pool, second)
    };
    received.points.iter().map(point).collect()
}
