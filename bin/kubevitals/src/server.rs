//! `kubevitals server`: the resource metrics API (`metrics.k8s.io`) behind `kubectl top`, HPA and VPA.
//!
//! ```text
//! watch (nodes, pods) ─┬────────────────► usage store ──publish──► metrics API ──► apiserver kit ──► HTTPS
//!                      └─► scrape loops ─────▲
//! ```

mod bridge;
mod checks;
pub(crate) mod cluster;
mod compat;
mod config;
mod flags;
mod serving;

use std::io::Write;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, SystemTime};

pub use flags::ServerFlags;
use kube_client_metrics::{Hooks, Registry as ClientMetrics};
use kubevitals_apiserver::{ApiServer, ApiServerMetrics, ServerTelemetry};
use kubevitals_cli::{InvalidSetting, RunError, Shutdown};
use kubevitals_metrics_api::MetricsApi;
use kubevitals_scrape::{RESOURCE_METRICS_PATH, ScrapeConfig, ScrapeMetrics, Scraper, WallClock};
use kubevitals_tls::{Periodic, refresh_loop};
use kubevitals_usage::{UsageStore, follow_nodes, follow_pods};
use kubevitals_watch::{
    KubeTransport, Node, PodBrief, PodPhase, Server as WatchServer, Stream, StreamSpec,
    Subscription, Update, WatchMetrics, What,
};
use tokio::task::JoinSet;

use self::bridge::{FromStore, IntoStore};
use self::cluster::KubeletAccess;
use self::config::Settings;
use crate::process::Context;

/// Only what may yet run: a pod that has ended has no usage any more, and some clusters keep thousands of them.
const LIVING_PODS: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// Machines of clusters have dozens of processors, and a thread for each would cost memory and wake the others for
/// nothing: all scraping of the largest cluster is a part of one. A few long lists at once leave one for who asks for little.
pub(crate) const MOST_THREADS: usize = 4;

/// How often what has become too old is looked for.
const EXPIRE_EVERY: Duration = Duration::from_secs(1);

/// How often files are looked at again.
const REFRESH_EVERY: Duration = Duration::from_secs(10);

/// The server, configured and with nothing opened yet.
pub struct Server {
    settings: Settings,
    unheeded: Vec<(&'static str, &'static str)>,
}

/// The streams that the role lives on.
struct Streams {
    nodes: Stream<Node>,
    pods: Stream<PodBrief>,
}

impl Server {
    /// Checks what the flags ask for.
    pub fn configure(flags: &ServerFlags) -> Result<Self, InvalidSetting> {
        Ok(Self {
            settings: Settings::new(flags)?,
            unheeded: flags.compat.unheeded().collect(),
        })
    }

    /// Runs until the end is asked for.
    pub async fn run(
        self,
        mut context: Context,
        out: &mut (dyn Write + Send),
    ) -> Result<(), RunError> {
        let settings = self.settings;
        for (flag, why) in &self.unheeded {
            tracing::warn!("--{flag} has no effect: {why}");
        }
        let clock = WallClock::system();
        let cluster = cluster::load("kubeconfig", settings.kubeconfig.as_deref()).await?;
        let kubelets = KubeletAccess::new(&settings.kubelet, &cluster, SystemTime::now())?;

        let known = Arc::new(OnceLock::new());
        let api = MetricsApi::new(kubevitals_metrics_api::Config::new(Arc::new(FromStore {
            store: Arc::clone(&known),
            clock: clock.clone(),
        })));
        let store = Arc::new(UsageStore::new(settings.usage, Arc::new(api.clone())));
        // Filled once, before anything can be asked.
        let _ = known.set(Arc::clone(&store));

        let metrics = &mut context.metrics;
        let watch_metrics = WatchMetrics::register(metrics.sub("kubevitals_watch"));
        let scrape_metrics = ScrapeMetrics::register(metrics, settings.usage.resolution);
        store.metrics().register(metrics.root());
        api.register(metrics);
        let served = ApiServerMetrics::register(metrics);
        let client_metrics = ClientMetrics::new();
        metrics
            .root()
            .register_collector(Box::new(client_metrics.clone()));
        let hooks = client_metrics.hooks();

        let streams = Streams::start(&cluster, &settings, &watch_metrics, &hooks)?;
        checks::register_inherited(&context.health)?;
        let mut tasks = JoinSet::new();
        // Before the first scrape: the store takes no word of a node that it does not know.
        follow(&mut tasks, &streams, &store, &clock);
        let receiver = Arc::new(IntoStore {
            store: Arc::clone(&store),
            clock: clock.clone(),
        });
        let refreshed = kubelets.refreshed.clone();
        let scraper = Scraper::start(
            scraping(&settings, kubelets, clock.clone()),
            &streams.nodes,
            receiver,
            scrape_metrics,
        )
        .map_err(RunError::runtime)?;
        let scraper = Arc::new(scraper);
        tasks.spawn(nudge(streams.pods.subscribe(), Arc::downgrade(&scraper)));
        scraper
            .add_livez(&context.health)
            .map_err(RunError::runtime)?;

        let mut shutdown = context.shutdown.clone();
        let (health, logs) = (context.health.clone(), context.logs.clone());
        let profiling = context.allows_profiles();
        let admin = context.start_admin().await?;
        let telemetry = ServerTelemetry {
            health: health.clone(),
            registry: admin.registry,
            metrics: served,
            logs,
            profiling,
        };
        let mut serving =
            serving::configure(&settings, &cluster, &hooks, telemetry, vec![api.group()]).await?;
        let bundle = serving.bundle.take();
        let server = ApiServer::bind(serving.config)
            .await
            .map_err(RunError::runtime)?;
        checks::register_own(&health, &streams, &store, &clock, server.trust_status())?;
        let address = server.local_addr();
        let told = format!(
            "serving metrics.k8s.io on https://{address}, admin on http://{}\n",
            admin.address
        );
        out.write_all(told.as_bytes()).map_err(RunError::runtime)?;

        tasks.spawn(refresh_loop(
            refreshed,
            Periodic::new(REFRESH_EVERY, ended(shutdown.clone())),
        ));
        if let Some(bundle) = bundle {
            tasks.spawn(bundle.run());
        }
        server.serve(ended(shutdown.clone())).await;

        shutdown.requested().await;
        tasks.shutdown().await;
        streams.nodes.shutdown().await;
        streams.pods.shutdown().await;
        if let Ok(scraper) = Arc::try_unwrap(scraper).map_err(drop) {
            scraper.shutdown().await;
        }
        // It ends by the same signal.
        let _ = admin.task.await;
        Ok(())
    }
}

impl Streams {
    fn start(
        cluster: &kube::Config,
        settings: &Settings,
        metrics: &WatchMetrics,
        hooks: &Hooks,
    ) -> Result<Self, RunError> {
        let transport = KubeTransport::measured(cluster.clone(), hooks);
        let transport = transport.map_err(RunError::runtime)?;
        let server = WatchServer::measured(transport, hooks.clone());
        let mut nodes = StreamSpec::<Node>::new("nodes").keep_annotations([RESOURCE_METRICS_PATH]);
        if let Some(selector) = &settings.node_selector {
            nodes = nodes.labels(selector);
        }
        let streams = Self {
            nodes: server.watch(nodes),
            pods: server.watch(StreamSpec::<PodBrief>::new("pods").fields(LIVING_PODS)),
        };
        metrics.track(&streams.nodes);
        metrics.track(&streams.pods);
        Ok(streams)
    }
}

fn scraping(settings: &Settings, kubelets: KubeletAccess, clock: WallClock) -> ScrapeConfig {
    let flags = &settings.kubelet;
    let mut config = ScrapeConfig::new(kubelets.transport, kubelets.credentials);
    config.resolution = settings.usage.resolution;
    config.timeout = settings.kubelet_timeout;
    config.address_types.clone_from(&settings.address_types);
    config.port = flags.kubelet_port;
    config.use_node_status_port = flags.kubelet_use_node_status_port;
    // Said to be insecure by whoever set the flag, and metrics-server sends it too.
    config.token_to_unverified = flags.kubelet_insecure_tls;
    config.pin_keys = flags.kubelet_pin_certificates;
    config.ephemeral_storage = settings.usage.extra.ephemeral_storage;
    config.clock = clock;
    config
}

/// Keeps the store in step with the cluster.
fn follow(tasks: &mut JoinSet<()>, streams: &Streams, store: &Arc<UsageStore>, clock: &WallClock) {
    let of = || (Arc::clone(store), clock.clone());
    let (into, now) = of();
    let nodes = streams.nodes.subscribe();
    tasks.spawn(async move { follow_nodes(nodes, &into, || now.now()).await });
    let (into, now) = of();
    let pods = streams.pods.subscribe();
    tasks.spawn(async move { follow_pods(pods, &into, || now.now()).await });
    let (into, now) = of();
    tasks.spawn(async move {
        let mut ticks = tokio::time::interval(EXPIRE_EVERY);
        loop {
            ticks.tick().await;
            into.expire(now.now());
        }
    });
}

/// Has a node scraped soon after a pod began to run on it.
async fn nudge(mut pods: Subscription<PodBrief>, scraper: Weak<Scraper>) {
    while let Some(update) = pods.next().await {
        let Update::Change(change) = update else {
            continue;
        };
        let Some(node) = node_of_new_runner(&change.what) else {
            continue;
        };
        let Some(scraper) = scraper.upgrade() else {
            return;
        };
        scraper.nudge(node);
    }
}

/// The node of a pod that has just begun to run: its kubelet has something new to say.
fn node_of_new_runner(what: &What<PodBrief>) -> Option<&str> {
    let (pod, before) = match what {
        What::Added(now) => (now, None),
        What::Modified { before, now } => (now, Some(before.phase)),
        What::Deleted(_) => return None,
    };
    let begins = pod.phase == PodPhase::Running && before != Some(PodPhase::Running);
    begins.then(|| pod.node.as_deref()).flatten()
}

async fn ended(mut shutdown: Shutdown) {
    shutdown.requested().await;
}
