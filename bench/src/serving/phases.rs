//! What is done with one server: started, left alone, put under load, made to lose a scrape, ended.

use std::time::Duration;

use http::StatusCode;
use tokio::time::{Instant, sleep};

use super::bed::{Bed, VICTIM};
use super::program::ServerProgram;
use super::reads::{self, API};
use super::told;
use crate::BenchError;
use crate::contender::{Running, Usage};
use crate::https::Client;
use crate::measure::Values;
use crate::proc::CpuTicks;
use crate::result::{Better, Metric, Unit};
use crate::session::say;
use crate::sim::until;

/// No server needs longer until it has metrics of nearly every pod.
const FIRST_METRICS: Duration = Duration::from_mins(4);

/// How many resolutions the last of the pods may take beyond nearly all of them; then it goes on
/// without.
const STRAGGLERS: u32 = 4;

/// How often it is asked whether there are metrics: the grain of the figures about them.
const LOOK: Duration = Duration::from_millis(100);

/// Asking for all pods may take this part of the time until it is asked again: who waits for
/// metrics must not be what keeps the server from having them.
const SHARE_OF_LOOKING: u32 = 5;

/// Beyond the resolution, a scrape is certainly lost after this: schedules have some jitter.
const JITTER: Duration = Duration::from_secs(5);

/// Occurs once in each item of a list, of nodes and of pods.
const ITEM: &[u8] = br#""window":"#;

/// What is done, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phases {
    /// How often servers scrape.
    pub resolution: Duration,
    /// How long each window is: one with scraping only, one under load.
    pub duration: Duration,
    /// Whether reads go through the cluster's aggregation layer.
    pub aggregated: bool,
    /// Whether answers may be compressed.
    pub gzip: bool,
    /// Whether a node is made to lose a scrape. Servers that run together would share the fault,
    /// and the first of them to notice would heal the node before another lost one.
    pub lost_scrape: bool,
}

/// What a window cost the server, the cluster and the load.
struct Window {
    server: Usage,
    cluster: Duration,
    generator: Duration,
}

impl Phases {
    /// A window of whole resolutions: one that is cut at random holds a scrape more or less, which
    /// is chance and no cost.
    pub fn whole_scrapes(duration: Duration, resolution: Duration) -> Duration {
        let resolution = resolution.as_secs().max(1);
        Duration::from_secs(duration.as_secs().next_multiple_of(resolution))
    }

    /// What [`Bed::measure`] tells, in the order of the table.
    pub fn metrics() -> Vec<Metric> {
        let told = |key, label, unit| Metric::new(key, label, unit, Better::Neither);
        let mut metrics = vec![
            Metric::seconds("cpu.load", "CPU, under load"),
            Metric::seconds("cpu.scrape", "CPU, scraping only"),
            Metric::bytes("rss.peak", "peak RSS"),
            Metric::bytes("rss.load", "steady RSS, under load"),
            Metric::bytes("rss.scrape", "steady RSS, scraping only"),
            Metric::seconds("first.node", "first metrics after start"),
            Metric::seconds("first.most", "metrics of 99 % of pods after start"),
            Metric::seconds("first.all", "metrics of every pod after start"),
            Metric::seconds("blind", "without metrics after a lost scrape"),
        ];
        for (key, label) in reads::KINDS {
            let key = |name: &str| format!("{key}.{name}");
            metrics.extend([
                Metric::seconds(&key("p50"), &format!("{label}, p50")),
                Metric::seconds(&key("p99"), "  p99"),
                Metric::seconds(&key("first_byte_p50"), "  first byte of the body, p50"),
                Metric::bytes(&key("bytes"), "  bytes on the wire"),
                Metric::count(&key("count"), "  answered"),
                Metric::count(&key("failed"), "  failed"),
            ]);
        }
        metrics.extend([
            told("age.p50", "age of nodes' samples, p50", Unit::Seconds),
            told("age.max", "  oldest", Unit::Seconds),
            told("scrapes", "scrapes of a node in a resolution", Unit::Count),
            told("scrapes.failed", "scrapes that failed", Unit::Count),
            told(
                "cluster.load",
                "CPU of the cluster, under load",
                Unit::Seconds,
            ),
            told("cluster.scrape", "  scraping only", Unit::Seconds),
            told("generator.load", "CPU of the load generator", Unit::Seconds),
        ]);
        metrics
    }
}

impl Bed {
    /// One measurement of one server, from its start to its end.
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
        let (answers, loaded) = self.window(&mut running, load).await?;
        for (key, answers) in &answers {
            values.extend(answers.values(key));
            if let Some(failure) = &answers.first_failure {
                let (name, failed) = (server.name, answers.failed);
                say(&format!(
                    "{name}: {failed} reads of {key} failed, first: {failure}"
                ));
            }
        }
        if let Some(ages) = told::ages_over(client, phases.resolution).await? {
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
            let (blind, _) = running
                .during(self.blind(client, phases.resolution))
                .await?;
            values.insert("blind".to_owned(), blind.as_secs_f64());
        }
        if let Some(scrapes) = told::scrapes(&direct).await? {
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
    /// hang on one container of thousands whose kubelet took no new sample between two scrapes, and
    /// then moves by a whole resolution; it is not waited for forever, and left out if it did not
    /// come.
    pub async fn first_metrics(
        &self,
        running: &mut Running,
        client: &Client,
        resolution: Duration,
    ) -> Result<Values, BenchError> {
        let mut seen = Values::new();
        let patience = (resolution * STRAGGLERS).as_secs_f64();
        let all = self.size.pods();
        let most = all - all / 100;
        loop {
            running.check()?;
            let (age, most_at) = (running.age(), seen.get("first.most").copied());
            if most_at.is_some_and(|at| age.as_secs_f64() > at + patience) {
                return Ok(seen);
            }
            if age > FIRST_METRICS && most_at.is_none() {
                return Err(BenchError::Late {
                    what: "metrics of 99 % of pods".to_owned(),
                    within: FIRST_METRICS,
                });
            }
            let mut wait = LOOK;
            if !seen.contains_key("first.node") && items(client, "nodes").await > 0 {
                seen.insert("first.node".to_owned(), running.age().as_secs_f64());
            }
            // The list of pods is long: it is asked for only when there may be some.
            if seen.contains_key("first.node") {
                let asked = Instant::now();
                let listed = items(client, "pods").await;
                let now = running.age().as_secs_f64();
                if listed >= most {
                    seen.entry("first.most".to_owned()).or_insert(now);
                }
                if listed >= all {
                    seen.insert("first.all".to_owned(), now);
                    return Ok(seen);
                }
                wait = wait.max(asked.elapsed() * (SHARE_OF_LOOKING - 1));
            }
            sleep(wait).await;
        }
    }

    /// How long one lost scrape leaves the node or its pod without metrics.
    async fn blind(&self, client: &Client, resolution: Duration) -> Result<Duration, BenchError> {
        let (namespace, pod) = &self.victim_pod;
        let paths = [
            format!("{API}/nodes/{VICTIM}"),
            format!("{API}/namespaces/{namespace}/pods/{pod}"),
        ];
        self.sim.set_fault(Some(&format!("500={VICTIM}"))).await?;
        // One that keeps the last good value never lacks it; then a scrape was lost at the latest
        // here.
        let lost_by = Instant::now() + resolution + JITTER;
        let gone = until("the loss of a scrape", LOOK, resolution * 3, async || {
            if !has_all(client, &paths).await {
                return Ok(Some(Some(Instant::now())));
            }
            Ok((Instant::now() >= lost_by).then_some(None))
        })
        .await?;
        self.sim.set_fault(None).await?;
        let Some(gone) = gone else {
            return Ok(blind_later(client, &paths, resolution).await);
        };
        until(
            "metrics after a lost scrape",
            LOOK,
            resolution * 6,
            async || Ok(has_all(client, &paths).await.then(|| gone.elapsed())),
        )
        .await
    }
}

/// Two further scrapes, in which nothing may be lacking either.
async fn blind_later(client: &Client, paths: &[String; 2], resolution: Duration) -> Duration {
    let until_then = Instant::now() + resolution * 2;
    let (mut blind, mut last) = (Duration::ZERO, Instant::now());
    while Instant::now() < until_then {
        sleep(LOOK).await;
        if !has_all(client, paths).await {
            blind += last.elapsed();
        }
        last = Instant::now();
    }
    blind
}

/// How many there are; none while the server does not answer yet.
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
