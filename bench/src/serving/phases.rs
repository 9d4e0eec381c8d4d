//! The phases of one measurement: start, scraping only, load, a lost scrape, stop.

use std::time::Duration;

use http::StatusCode;
use tokio::time::{Instant, sleep};

use super::program::ServerProgram;
use super::reads::{self, API};
use super::reported;
use super::testbed::{FAULTY_NODE, Testbed};
use crate::BenchError;
use crate::contender::{Running, Usage};
use crate::https::Client;
use crate::measure::Values;
use crate::proc::CpuTicks;
use crate::result::{Metric, Unit};
use crate::session::print_line;
use crate::sim::poll_until;

/// Maximum time until a server has metrics of nearly every pod.
const FIRST_METRICS_TIMEOUT: Duration = Duration::from_mins(4);

/// Maximum wait for the last pods after nearly all of them, in resolutions; then the measurement
/// continues without.
const MAX_STRAGGLER_RESOLUTIONS: u32 = 4;

/// Interval of polls for metrics: the resolution of the figures about them.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Minimum ratio of the time between two polls to the duration of a list of all pods: polling must
/// not delay the server's metrics.
const MIN_POLL_RATIO: u32 = 5;

/// Scrape schedules have some jitter: a scrape is lost after the resolution and this.
const JITTER: Duration = Duration::from_secs(5);

/// Occurs once in each item of a list, of nodes and of pods.
const ITEM: &[u8] = br#""window":"#;

/// Parameters of the phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phases {
    /// Scrape interval of the servers.
    pub resolution: Duration,
    /// Length of each window: one with scraping only, one under load.
    pub duration: Duration,
    /// Whether reads go through the cluster's aggregation layer.
    pub aggregated: bool,
    /// Whether responses may be compressed.
    pub gzip: bool,
    /// Whether a scrape of a node is made to fail. Servers that run together would share the fault,
    /// and the first of them to notice would clear it before another lost a scrape.
    pub lost_scrape: bool,
}

/// Cost of a window for the server, the cluster and the load generator.
struct Window {
    server: Usage,
    cluster: Duration,
    generator: Duration,
}

impl Phases {
    /// Rounds a window up to whole resolutions: a window of arbitrary length contains one scrape
    /// more or less by chance.
    pub fn whole_scrapes(duration: Duration, resolution: Duration) -> Duration {
        let resolution = resolution.as_secs().max(1);
        Duration::from_secs(duration.as_secs().next_multiple_of(resolution))
    }

    /// The metrics of [`Testbed::measure`], in the order of the table.
    pub fn metrics() -> Vec<Metric> {
        let mut metrics = vec![
            Metric::seconds("cpu.load", "CPU, under load"),
            Metric::seconds("cpu.scrape", "CPU, scraping only"),
            Metric::bytes("rss.peak", "peak RSS"),
            Metric::bytes("rss.load", "steady RSS, under load"),
            Metric::bytes("rss.scrape", "steady RSS, scraping only"),
            Metric::seconds("first.node", "first metrics after start"),
            Metric::seconds("first.most", "metrics of 99 % of pods after start"),
            Metric::seconds("first.all", "metrics of every pod after start"),
            Metric::seconds("blind", "no metrics after a lost scrape"),
        ];
        for (key, label) in reads::KINDS {
            let key = |name: &str| format!("{key}.{name}");
            metrics.extend([
                Metric::seconds(&key("p50"), &format!("{label}, p50")),
                Metric::seconds(&key("p99"), "  p99"),
                Metric::seconds(&key("first_byte_p50"), "  first byte of the body, p50"),
                Metric::bytes(&key("bytes"), "  bytes on the wire"),
                Metric::count(&key("count"), "  succeeded"),
                Metric::count(&key("failed"), "  failed"),
            ]);
        }
        metrics.extend([
            Metric::info("age.p50", "age of node samples, p50", Unit::Seconds),
            Metric::info("age.max", "  maximum", Unit::Seconds),
            Metric::info("scrapes", "scrapes per node and resolution", Unit::Count),
            Metric::info("scrapes.failed", "failed scrapes", Unit::Count),
            Metric::info(
                "cluster.load",
                "CPU of the cluster, under load",
                Unit::Seconds,
            ),
            Metric::info("cluster.scrape", "  scraping only", Unit::Seconds),
            Metric::info("generator.load", "CPU of the load generator", Unit::Seconds),
        ]);
        metrics
    }
}

impl Testbed {
    /// Measures one server from its start to its stop.
    pub async fn measure(
        &self,
        server: &ServerProgram,
        phases: &Phases,
    ) -> Result<Values, BenchError> {
        let (mut running, address) = self.serve(server, phases.resolution, &[]).await?;
        let direct = self.client(address)?;
        let aggregated;
        let client = if phases.aggregated {
            aggregated = self.aggregated_client(address).await?;
            &aggregated
        } else {
            &direct
        };

        let mut values = self
            .first_metrics(&mut running, client, phases.resolution)
            .await?;
        let pause = async {
            sleep(phases.duration).await;
            Ok(())
        };
        let ((), alone) = self.window(&mut running, pause).await?;
        let plan = reads::plan(&self.workloads, phases.duration, phases.gzip);
        let load = async { Ok(plan.run(client).await) };
        let (results, loaded) = self.window(&mut running, load).await?;
        for (key, results) in &results {
            values.extend(results.values(key));
            if let Some(failure) = &results.first_failure {
                let (name, failed) = (server.name, results.failed);
                print_line(&format!(
                    "{name}: {failed} reads of {key} failed, first: {failure}"
                ));
            }
        }
        if let Some(ages) = reported::ages_over(client, phases.resolution).await? {
            values.insert("age.p50".to_owned(), ages.median.as_secs_f64());
            values.insert("age.max".to_owned(), ages.oldest.as_secs_f64());
        }
        #[expect(clippy::cast_precision_loss, reason = "memory is far below 2^53 bytes")]
        let peak = loaded.server.peak.max(alone.server.peak) as f64;
        let seconds = |key: &str, time: Duration| (key.to_owned(), time.as_secs_f64());
        values.extend([
            seconds("cpu.scrape", alone.server.cpu),
            seconds("cpu.load", loaded.server.cpu),
            seconds("cluster.scrape", alone.cluster),
            seconds("cluster.load", loaded.cluster),
            seconds("generator.load", loaded.generator),
            ("rss.scrape".to_owned(), alone.server.steady),
            ("rss.load".to_owned(), loaded.server.steady),
            ("rss.peak".to_owned(), peak),
        ]);
        if phases.lost_scrape {
            let (outage, _) = running
                .during(self.outage(client, phases.resolution))
                .await?;
            values.insert("blind".to_owned(), outage.as_secs_f64());
        }
        if let Some(scrapes) = reported::scrapes(&direct).await? {
            let resolutions = running.age().as_secs_f64() / phases.resolution.as_secs_f64();
            let each = scrapes.good / f64::from(self.size.nodes) / resolutions;
            values.insert("scrapes".to_owned(), each);
            values.insert("scrapes.failed".to_owned(), scrapes.failed);
        }
        values.insert("took".to_owned(), running.age().as_secs_f64());
        running.stop().await;
        Ok(values)
    }

    async fn window<T>(
        &self,
        running: &mut Running,
        work: impl Future<Output = Result<T, BenchError>>,
    ) -> Result<(T, Window), BenchError> {
        let own = || Ok::<_, BenchError>(CpuTicks::read(std::process::id())?.time());
        let before = (self.cpu()?, own()?);
        let (done, server) = running.during(work).await?;
        let window = Window {
            server,
            cluster: self.cpu()?.saturating_sub(before.0),
            generator: own()?.saturating_sub(before.1),
        };
        Ok((done, window))
    }

    /// Waits until there are metrics of a node, of nearly every pod and of every pod. The last can
    /// depend on one container of thousands whose kubelet took no new sample between two scrapes,
    /// and is then late by a whole resolution; the wait is bounded, and the value is omitted if it
    /// is exceeded.
    pub async fn first_metrics(
        &self,
        running: &mut Running,
        client: &Client,
        resolution: Duration,
    ) -> Result<Values, BenchError> {
        let mut seen = Values::new();
        let max_wait = (resolution * MAX_STRAGGLER_RESOLUTIONS).as_secs_f64();
        let all = self.size.pods();
        let nearly_all = all - all / 100;
        loop {
            running.check()?;
            let (age, nearly_all_at) = (running.age(), seen.get("first.most").copied());
            if nearly_all_at.is_some_and(|at| age.as_secs_f64() > at + max_wait) {
                return Ok(seen);
            }
            if age > FIRST_METRICS_TIMEOUT && nearly_all_at.is_none() {
                return Err(BenchError::Timeout {
                    event: "metrics of 99 % of pods".to_owned(),
                    timeout: FIRST_METRICS_TIMEOUT,
                });
            }
            let mut wait = POLL_INTERVAL;
            if !seen.contains_key("first.node") && items(client, "nodes").await > 0 {
                seen.insert("first.node".to_owned(), running.age().as_secs_f64());
            }
            // The list of pods is long: it is requested only once there may be some.
            if seen.contains_key("first.node") {
                let requested_at = Instant::now();
                let listed = items(client, "pods").await;
                let now = running.age().as_secs_f64();
                if listed >= nearly_all {
                    seen.entry("first.most".to_owned()).or_insert(now);
                }
                if listed >= all {
                    seen.insert("first.all".to_owned(), now);
                    return Ok(seen);
                }
                wait = wait.max(requested_at.elapsed() * (MIN_POLL_RATIO - 1));
            }
            sleep(wait).await;
        }
    }

    /// Measures how long one lost scrape leaves the node or its pod without metrics.
    async fn outage(&self, client: &Client, resolution: Duration) -> Result<Duration, BenchError> {
        let (namespace, pod) = &self.faulty_pod;
        let paths = [
            format!("{API}/nodes/{FAULTY_NODE}"),
            format!("{API}/namespaces/{namespace}/pods/{pod}"),
        ];
        self.sim
            .set_fault(Some(&format!("500={FAULTY_NODE}")))
            .await?;
        // A server that keeps the last good value always has one; a scrape has been lost by then.
        let lost_by = Instant::now() + resolution + JITTER;
        let gone = poll_until(
            "the loss of a scrape",
            POLL_INTERVAL,
            resolution * 3,
            async || {
                if !has_all(client, &paths).await {
                    return Ok(Some(Some(Instant::now())));
                }
                Ok((Instant::now() >= lost_by).then_some(None))
            },
        )
        .await?;
        self.sim.set_fault(None).await?;
        let Some(gone) = gone else {
            return Ok(later_outage(client, &paths, resolution).await);
        };
        poll_until(
            "metrics after a lost scrape",
            POLL_INTERVAL,
            resolution * 6,
            async || Ok(has_all(client, &paths).await.then(|| gone.elapsed())),
        )
        .await
    }
}

/// Checks for missing metrics during two further scrapes.
async fn later_outage(client: &Client, paths: &[String; 2], resolution: Duration) -> Duration {
    let deadline = Instant::now() + resolution * 2;
    let (mut outage, mut last) = (Duration::ZERO, Instant::now());
    while Instant::now() < deadline {
        sleep(POLL_INTERVAL).await;
        if !has_all(client, paths).await {
            outage += last.elapsed();
        }
        last = Instant::now();
    }
    outage
}

/// Returns the number of items, 0 while the server does not respond yet.
async fn items(client: &Client, resource: &str) -> usize {
    match client.count(&format!("{API}/{resource}"), ITEM).await {
        Ok((StatusCode::OK, count)) => count,
        _ => 0,
    }
}

async fn has_all(client: &Client, paths: &[String; 2]) -> bool {
    for path in paths {
        if !matches!(client.json(path).await, Ok((StatusCode::OK, _))) {
            return false;
        }
    }
    true
}
