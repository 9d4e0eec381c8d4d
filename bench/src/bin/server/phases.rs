//! What is done with one server: started, left alone, put under load, made to lose a scrape, ended.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::StatusCode;
use kubevitals_bench::BenchError;
use kubevitals_bench::contender::Running;
use kubevitals_bench::https::Client;
use kubevitals_bench::measure::{Schedule, Values};
use kubevitals_bench::session::{Session, say};
use kubevitals_bench::sim::{SimProcess, until};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

use crate::Settings;
use crate::reads::{self, API};
use crate::server::ServerProgram;

/// No server needs longer until it has metrics of every pod.
const FIRST_METRICS: Duration = Duration::from_mins(3);

/// How often it is asked whether there are metrics: the grain of the figures about them.
const LOOK: Duration = Duration::from_millis(100);

/// Beyond the resolution, a scrape is certainly lost after this: schedules have some jitter.
const JITTER: Duration = Duration::from_secs(5);

/// The node that loses a scrape.
const VICTIM: &str = "node-00000";

/// The cluster, and what is asked of every server on it.
pub(crate) struct Bed {
    sim: SimProcess,
    settings: Settings,
    workloads: Vec<(String, String)>,
    /// A pod of the node that loses a scrape, as namespace and name.
    victim_pod: (String, String),
    pods: usize,
    scratch: PathBuf,
}

impl Bed {
    /// Looks at the cluster.
    pub(crate) async fn new(
        sim: SimProcess,
        settings: Settings,
        session: &Session,
    ) -> Result<Self, BenchError> {
        let (_, deployments) = sim.api.json("/apis/apps/v1/deployments").await?;
        let workloads = reads::workloads(&deployments);
        let on_victim = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{VICTIM}");
        let (_, pods) = sim.api.json(&on_victim).await?;
        let text = |pointer: &str| {
            pods.pointer(pointer)
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let victim_pod = text("/items/0/metadata/namespace").zip(text("/items/0/metadata/name"));
        let Some(victim_pod) = victim_pod.filter(|_| !workloads.is_empty()) else {
            let small = "the cluster has no workloads: give it more nodes or pods".to_owned();
            return Err(BenchError::NoContender(small));
        };
        let size = settings.size;
        let pods = usize::try_from(size.nodes.saturating_mul(size.pods_per_node));
        Ok(Self {
            sim,
            settings,
            workloads,
            victim_pod,
            pods: pods.unwrap_or(usize::MAX),
            scratch: session.scratch.clone(),
        })
    }

    /// One measurement of one server, from its start to its end.
    pub(crate) async fn measure(
        &self,
        server: &ServerProgram,
        repeat: usize,
    ) -> Result<Values, BenchError> {
        let address = free_address().await?;
        let kubeconfig = self.sim.kubeconfig();
        let Settings {
            resolution,
            duration,
            ..
        } = self.settings;
        let contender = server.contender(address, kubeconfig, resolution, &self.scratch);
        let mut running = contender.start()?;
        let client = self.client(address).await?;

        let mut values = self.first_metrics(&mut running, &client).await?;
        let pause = async {
            sleep(duration).await;
            Ok(())
        };
        let ((), alone) = running.during(pause).await?;
        let plan = reads::plan(&self.workloads, duration, self.settings.gzip);
        let (answers, loaded) = running
            .during(async { Ok(plan.run(&client).await) })
            .await?;
        for (key, answers) in &answers {
            values.extend(answers.values(key));
            if let Some(failure) = &answers.first_failure {
                say(&format!(
                    "{}: {} reads of {key} failed, first: {failure}",
                    server.name, answers.failed
                ));
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "memory is far below 2^53 bytes")]
        let peak = loaded.peak.max(alone.peak) as f64;
        values.extend([
            ("cpu.scrape".to_owned(), alone.cpu.as_secs_f64()),
            ("cpu.load".to_owned(), loaded.cpu.as_secs_f64()),
            ("rss.scrape".to_owned(), alone.steady),
            ("rss.load".to_owned(), loaded.steady),
            ("rss.peak".to_owned(), peak),
        ]);
        // Servers that run together share the fault, and the first of them to notice would heal the node before another
        // lost a scrape: then it is not measured.
        if self.settings.plan.schedule == Schedule::OneAfterOther {
            let (blind, _) = running.during(self.blind(&client)).await?;
            values.insert("blind".to_owned(), blind.as_secs_f64());
        }
        say(&format!(
            "{}, measurement {}: done after {:.0?}",
            server.name,
            repeat + 1,
            running.age()
        ));
        running.stop().await;
        Ok(values)
    }

    /// Ends the cluster.
    pub(crate) async fn stop(self) {
        self.sim.stop().await;
    }

    /// Straight to the server, or through the aggregation layer.
    async fn client(&self, address: SocketAddr) -> Result<Client, BenchError> {
        // As many as the load has under way at once, so that requests wait in one place only.
        let connections = 64;
        let identity = &self.sim.identity;
        if self.settings.aggregated {
            self.sim.aggregate(address).await?;
            return Ok(Client::new(
                identity.server,
                identity.api_tls()?,
                connections,
            ));
        }
        Ok(Client::new(
            address,
            identity.self_signed_tls()?,
            connections,
        ))
    }

    /// Waits until there are metrics of a node, of nearly every pod and of every pod. The last can hang on one container of
    /// thousands whose kubelet took no new sample between two scrapes, and then moves by a whole resolution.
    async fn first_metrics(
        &self,
        running: &mut Running,
        client: &Client,
    ) -> Result<Values, BenchError> {
        let mut seen = Values::new();
        let most = self.pods - self.pods / 100;
        until("metrics of every pod", LOOK, FIRST_METRICS, async || {
            running.check()?;
            let age = |running: &Running| running.age().as_secs_f64();
            if !seen.contains_key("first.node") && items(client, "nodes").await > 0 {
                seen.insert("first.node".to_owned(), age(running));
            }
            // The list of pods is long: it is asked for only when there may be some.
            if !seen.contains_key("first.node") {
                return Ok(None);
            }
            let listed = items(client, "pods").await;
            if listed >= most {
                seen.entry("first.most".to_owned())
                    .or_insert_with(|| age(running));
            }
            if listed >= self.pods {
                seen.insert("first.all".to_owned(), age(running));
            }
            Ok((listed >= self.pods).then_some(()))
        })
        .await?;
        Ok(seen)
    }

    /// How long one lost scrape leaves the node or its pod without metrics.
    async fn blind(&self, client: &Client) -> Result<Duration, BenchError> {
        let (namespace, pod) = &self.victim_pod;
        let paths = [
            format!("{API}/nodes/{VICTIM}"),
            format!("{API}/namespaces/{namespace}/pods/{pod}"),
        ];
        let resolution = self.settings.resolution;
        self.sim.set_fault(Some(&format!("500={VICTIM}"))).await?;
        // One that keeps the last good value never lacks it; then a scrape was lost at the latest here.
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
            return self.blind_later(client, &paths).await;
        };
        until(
            "metrics after a lost scrape",
            LOOK,
            resolution * 6,
            async || Ok(has_all(client, &paths).await.then(|| gone.elapsed())),
        )
        .await
    }

    /// Two further scrapes, in which nothing may be lacking either.
    async fn blind_later(
        &self,
        client: &Client,
        paths: &[String; 2],
    ) -> Result<Duration, BenchError> {
        let until_then = Instant::now() + self.settings.resolution * 2;
        let (mut blind, mut last) = (Duration::ZERO, Instant::now());
        while Instant::now() < until_then {
            sleep(LOOK).await;
            if !has_all(client, paths).await {
                blind += last.elapsed();
            }
            last = Instant::now();
        }
        Ok(blind)
    }
}

/// A free port of loopback. Somebody could take it before the server does; it would then end, and say so.
async fn free_address() -> Result<SocketAddr, BenchError> {
    let listener = TcpListener::bind("127.0.0.1:0").await;
    let address = listener.and_then(|listener| listener.local_addr());
    address.map_err(BenchError::file("listen on", "127.0.0.1"))
}

/// How many there are; none while the server does not answer yet.
async fn items(client: &Client, resource: &str) -> usize {
    match client.json(&format!("{API}/{resource}")).await {
        Ok((StatusCode::OK, list)) => list
            .get("items")
            .and_then(Value::as_array)
            .map_or(0, Vec::len),
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
