//! `kubevitals server`: the resource metrics API (`metrics.k8s.io`) behind `kubectl top`, HPA and
//! VPA.
//!
//! ```text
//! watch (nodes, pods) ─┬────────────────► usage store ──publish──► metrics API ──► apiserver kit ──► HTTPS
//!                      └─► scrape loops ─────▲
//! ```

mod bridge;
mod checks;
mod cluster;
mod compat;
mod config;
mod flags;
mod scraping;
mod serving;

use std::io::Write;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

pub use flags::ServerFlags;
use kube_client_metrics::Hooks;
use kubevitals_apiserver::{ApiServer, ApiServerMetrics, ServerTelemetry};
use kubevitals_cli::{InvalidSetting, RunError, Shutdown};
use kubevitals_metrics_api::{Config as MetricsApiConfig, MetricsApi};
use kubevitals_scrape::{RESOURCE_METRICS_PATH, ScrapeConfig, ScrapeMetrics, Scraper, WallClock};
use kubevitals_telemetry::{Health, LogHandle};
use kubevitals_tls::{Periodic, Refresh, refresh_loop};
use kubevitals_usage::{UsageStore, follow_nodes, follow_pods};
use kubevitals_watch::{
    Node, PodBrief, PodLike, PodPhase, Stream, StreamSpec, Subscription, Update, What,
};
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::bridge::IntoStore;
use self::cluster::KubeletAccess;
use self::config::Settings;
use self::scraping::ScrapingThread;
use crate::cluster::Cluster;
use crate::kubeconfig;
use crate::process::{Administered, Context};

/// Only what may yet run: a pod that has ended has no usage any more, and some clusters keep
/// thousands of them.
const LIVING_PODS: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// Machines of clusters have dozens of processors, and a thread for each would cost memory and wake
/// the others for nothing. A few long lists at once leave one for who asks for little.
pub(crate) const MAX_THREADS: usize = 4;

/// How often what has become too old is looked for.
const EXPIRE_EVERY: Duration = Duration::from_secs(1);

/// So long nodes are not scraped while pods are still being listed: those of the largest cluster
/// are within it, and nodes have metrics also where pods cannot be listed.
const PODS_PATIENCE: Duration = Duration::from_secs(30);

/// How often files are looked at again.
const REFRESH_EVERY: Duration = Duration::from_secs(10);

/// The server, configured and with nothing opened yet.
pub struct Server {
    settings: Settings,
    unheeded: Vec<(&'static str, &'static str)>,
}

/// The streams that the role lives on. Another role of the process may share them.
#[derive(Clone)]
pub(crate) struct Streams<P: PodLike> {
    pub(crate) nodes: Stream<Node>,
    /// All pods that may yet run, and whatever others there are.
    pub(crate) pods: Stream<P>,
}

/// The server at work on its streams, with nothing to ask it yet.
pub(crate) struct Begun<P: PodLike> {
    settings: Settings,
    cluster: kube::Config,
    hooks: Hooks,
    clock: WallClock,
    api: MetricsApi,
    store: Arc<UsageStore>,
    served: ApiServerMetrics,
    streams: Streams<P>,
    tasks: JoinSet<()>,
    scraper: Arc<Scraper>,
    scraping: ScrapingThread,
    refreshed: Vec<Arc<dyn Refresh>>,
}

/// What the process has around a server that begins to serve.
pub(crate) struct Surroundings {
    pub(crate) shutdown: Shutdown,
    pub(crate) health: Health,
    pub(crate) logs: Option<LogHandle>,
    pub(crate) profiling: bool,
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
        let file = self.settings.kubeconfig.as_deref();
        let config = kubeconfig::load("kubeconfig", file).await?;
        let cluster = Cluster::new(config, &mut context.metrics)?;
        let streams = Streams {
            nodes: self.watch_nodes(&cluster),
            pods: watch_pods(&cluster),
        };
        let begun = self.begin(&cluster, streams.clone(), &mut context)?;
        let surroundings = Surroundings::of(&context);
        let admin = context.start_admin().await?;
        begun.serve(surroundings, &admin, out).await?;
        streams.nodes.shutdown().await;
        streams.pods.shutdown().await;
        // It ends by the same signal.
        let _ = admin.task.await;
        Ok(())
    }

    /// Opens the watch of nodes.
    pub(crate) fn watch_nodes(&self, cluster: &Cluster) -> Stream<Node> {
        let mut nodes = StreamSpec::<Node>::new("nodes").keep_annotations([RESOURCE_METRICS_PATH]);
        if let Some(selector) = &self.settings.node_selector {
            nodes = nodes.labels(selector);
        }
        let nodes = cluster.watches.watch(nodes);
        cluster.metrics.track(&nodes);
        nodes
    }

    /// Begins to scrape the nodes of a cluster. Metrics are registered here: the admin server
    /// starts afterwards.
    pub(crate) fn begin<P: PodLike>(
        self,
        cluster: &Cluster,
        streams: Streams<P>,
        context: &mut Context,
    ) -> Result<Begun<P>, RunError> {
        let settings = self.settings;
        for (flag, why) in &self.unheeded {
            tracing::warn!("--{flag} has no effect: {why}");
        }
        let clock = WallClock::system();
        let kubelets = KubeletAccess::new(&settings.kubelet, &cluster.config, SystemTime::now())?;

        let (publisher, api) = MetricsApi::pair(MetricsApiConfig::default());
        let mut store = UsageStore::new(settings.usage);
        store.add_publisher(Arc::new(publisher));
        let store = Arc::new(store);

        let metrics = &mut context.metrics;
        let scrape_metrics = ScrapeMetrics::register(metrics, settings.usage.resolution);
        store.metrics().register(metrics.root());
        api.register(metrics);
        let served = ApiServerMetrics::register(metrics);

        checks::register_inherited(&context.health)?;
        let mut tasks = JoinSet::new();
        // Before the first scrape: the store takes no word of a node that it does not know.
        follow(&mut tasks, &streams, &store, &clock);
        let receiver = Arc::new(IntoStore {
            store: Arc::clone(&store),
            clock: clock.clone(),
        });
        let refreshed = kubelets.refreshed.clone();
        let scraping = ScrapingThread::start().map_err(RunError::runtime)?;
        let start = || {
            Scraper::start_after(
                pods_known(&streams),
                scrape_config(&settings, kubelets, clock.clone()),
                &streams.nodes,
                receiver,
                scrape_metrics,
            )
        };
        let scraper = scraping.within(start).map_err(RunError::runtime)?;
        let scraper = Arc::new(scraper);
        tasks.spawn(nudge(streams.pods.subscribe(), Arc::downgrade(&scraper)));
        scraper
            .add_livez(&context.health)
            .map_err(RunError::runtime)?;
        Ok(Begun {
            settings,
            cluster: cluster.config.clone(),
            hooks: cluster.hooks.clone(),
            clock,
            api,
            store,
            served,
            streams,
            tasks,
            scraper,
            scraping,
            refreshed,
        })
    }
}

impl<P: PodLike> Begun<P> {
    /// Serves until the end is asked for. The streams are left to whoever opened them.
    pub(crate) async fn serve(
        self,
        surroundings: Surroundings,
        admin: &Administered,
        out: &mut (dyn Write + Send),
    ) -> Result<(), RunError> {
        let Self {
            mut tasks, scraper, ..
        } = self;
        let Surroundings {
            mut shutdown,
            health,
            logs,
            profiling,
        } = surroundings;
        let telemetry = ServerTelemetry {
            health: health.clone(),
            registry: admin.registry.clone(),
            metrics: self.served,
            logs,
            profiling,
        };
        let mut serving = serving::configure(
            &self.settings,
            &self.cluster,
            &self.hooks,
            telemetry,
            vec![self.api.group(&self.store)],
        )
        .await?;
        let bundle = serving.bundle.take();
        let server = ApiServer::bind(serving.config)
            .await
            .map_err(RunError::runtime)?;
        let trust = server.trust_status();
        checks::register_own(&health, &self.streams, &self.store, &self.clock, trust)?;
        let address = server.local_addr();
        let told = format!(
            "serving metrics.k8s.io on https://{address}, admin on http://{}\n",
            admin.address
        );
        out.write_all(told.as_bytes()).map_err(RunError::runtime)?;

        tasks.spawn(refresh_loop(
            self.refreshed,
            Periodic::new(REFRESH_EVERY, ended(shutdown.clone())),
        ));
        if let Some(bundle) = bundle {
            tasks.spawn(bundle.run());
        }
        server.serve(ended(shutdown.clone())).await;

        shutdown.requested().await;
        tasks.shutdown().await;
        if let Ok(scraper) = Arc::try_unwrap(scraper).map_err(drop) {
            scraper.shutdown().await;
        }
        drop(self.scraping);
        Ok(())
    }
}

impl Surroundings {
    pub(crate) fn of(context: &Context) -> Self {
        Self {
            shutdown: context.shutdown.clone(),
            health: context.health.clone(),
            logs: context.logs.clone(),
            profiling: context.allows_profiles(),
        }
    }
}

/// Opens a watch of pods that is the server's alone.
fn watch_pods(cluster: &Cluster) -> Stream<PodBrief> {
    let pods = StreamSpec::<PodBrief>::new("pods").fields(LIVING_PODS);
    let pods = cluster.watches.watch(pods);
    cluster.metrics.track(&pods);
    pods
}

fn scrape_config(settings: &Settings, kubelets: KubeletAccess, clock: WallClock) -> ScrapeConfig {
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

/// Waits until it is known which pods there are. A sample of a pod that is not known yet must be
/// held with all its names, and those of a whole large cluster would be the peak of the program's
/// memory.
fn pods_known<P: PodLike>(streams: &Streams<P>) -> impl Future<Output = ()> + Send + 'static {
    let pods = streams.pods.clone();
    async move {
        if timeout(PODS_PATIENCE, pods.synced()).await.is_err() {
            tracing::warn!("pods are not listed yet, nodes are scraped without them");
        }
    }
}

/// Keeps the store in step with the cluster.
fn follow<P: PodLike>(
    tasks: &mut JoinSet<()>,
    streams: &Streams<P>,
    store: &Arc<UsageStore>,
    clock: &WallClock,
) {
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
async fn nudge<P: PodLike>(mut pods: Subscription<P>, scraper: Weak<Scraper>) {
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
        scraper.trigger(node);
    }
}

/// The node of a pod that has just begun to run: its kubelet has something new to say.
fn node_of_new_runner<P: PodLike>(what: &What<P>) -> Option<&str> {
    let (pod, before) = match what {
        What::Added(now) => (now.brief(), None),
        What::Modified { before, now } => (now.brief(), Some(before.brief().phase)),
        What::Deleted(_) => return None,
    };
    let begins = pod.phase == PodPhase::Running && before != Some(PodPhase::Running);
    pod.node.as_deref().filter(|_| begins)
}

async fn ended(mut shutdown: Shutdown) {
    shutdown.requested().await;
}
