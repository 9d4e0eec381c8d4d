//! `kubevitals server`: the resource metrics API (`metrics.k8s.io`) behind `kubectl top`, HPA and
//! VPA.
//!
//! ```text
//! watch (nodes, pods) ─┬────────────────► usage store ──publish──► metrics API ──► apiserver kit ──► HTTPS
//!                      └─► scrape loops ─────▲
//! ```

mod ca_reloads;
mod checks;
mod compat;
mod config;
mod flags;
mod follow;
mod kubelet_access;
mod kubelet_token;
mod running;
mod scrape_sink;
mod scraping;
mod serving;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub use flags::ServerFlags;
use kubevitals_apiserver::ApiServerMetrics;
use kubevitals_cli::{InvalidSetting, ResultExt as _, RunError};
use kubevitals_metrics_api::{Config as MetricsApiConfig, MetricsApi};
use kubevitals_model::{Clock, Node, PodPhase, Rng};
use kubevitals_scrape::{
    ANNOTATIONS, NodeFilter, RenewedToken, ScrapeConfig, ScrapeMetrics, Scraper, TokenMetrics,
};
use kubevitals_telemetry::Probe;
use kubevitals_usage::UsageStore;
use kubevitals_watch::{ObjectEvent, PodKind, Reflector, Subscription, Update};
use tokio::time::timeout;

use self::config::Settings;
use self::follow::{follow_nodes, follow_pods};
use self::kubelet_access::KubeletAccess;
use self::kubelet_token::TokenRequests;
use self::running::RunningServer;
use self::scrape_sink::UsageSink;
use self::scraping::ScrapingThread;
use crate::process::{OpenFiles, ProcessFlags, TaskSet};
use crate::proxy;
use crate::role::{Kubeconfig, Role, RoleDefinition, RunningRole, Setup};
use crate::watches::{NodeRequest, PodWatch, WatchRequests};

/// Interval at which expired usage is removed.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum wait of scraping for the first list of pods. Even the largest clusters list faster;
/// without a list, nodes still get metrics.
const POD_LIST_TIMEOUT: Duration = Duration::from_secs(30);

const EXAMPLES: &str = "\
Flags of metrics-server have the same names, defaults and meaning. A binary that is invoked as
metrics-server (by a symbolic link) runs this command.

Examples:
  kubevitals server --secure-port=10250 --cert-dir=/tmp --metric-resolution=15s \\
      --kubelet-use-node-status-port --kubelet-preferred-address-types=InternalIP,Hostname
  kubevitals server --kubeconfig ~/.kube/config --secure-port 10250 --cert-dir /tmp/kubevitals";

/// The role, configured and with nothing opened yet.
pub struct Server {
    settings: Settings,
    ignored: Vec<(&'static str, &'static str)>,
}

/// The watches that the role reads.
struct ServerWatches<P: PodKind> {
    nodes: Reflector<Node>,
    /// All pods that can still run, and possibly others.
    pods: Reflector<P>,
}

impl RoleDefinition for Server {
    type Flags = ServerFlags;

    const NAME: &'static str = "server";
    const ABOUT: &'static str = "Serve the resource metrics API behind kubectl top, HPA and VPA, in place of metrics-server";
    const EXAMPLES: &'static str = EXAMPLES;
    /// Nodes have dozens of processors, and a thread for each would cost memory and wake the others
    /// for nothing. With a few long lists in flight, one thread is left for short requests.
    const MAX_THREADS: usize = 4;

    fn configure(flags: &ServerFlags) -> Result<Self, InvalidSetting> {
        Ok(Self {
            settings: Settings::new(flags)?,
            ignored: flags.compat.ignored().collect(),
        })
    }

    fn process(flags: &ServerFlags) -> &ProcessFlags {
        &flags.process
    }
}

impl Role for Server {
    fn kubeconfig(&self) -> Kubeconfig {
        Kubeconfig {
            file: self.settings.kubeconfig.clone(),
            fall_back_to_kubectl: false,
        }
    }

    fn watches(&self, requests: &mut WatchRequests) -> Result<(), InvalidSetting> {
        requests.nodes(NodeRequest {
            annotations: ANNOTATIONS.into(),
            selector: self.settings.node_selector.clone(),
        })?;
        requests.pod_summaries()
    }

    fn start(self: Box<Self>, setup: &mut Setup<'_>) -> Result<Box<dyn RunningRole>, RunError> {
        let nodes = setup.watches.nodes()?;
        let running = match setup.watches.pods()? {
            PodWatch::Summaries(pods) => self.start_on(&ServerWatches { nodes, pods }, setup),
            PodWatch::Full(pods) => self.start_on(&ServerWatches { nodes, pods }, setup),
        };
        Ok(Box::new(running?))
    }
}

impl Server {
    /// Starts to scrape the nodes of the cluster.
    fn start_on<P: PodKind>(
        self,
        watches: &ServerWatches<P>,
        setup: &mut Setup<'_>,
    ) -> Result<RunningServer, RunError> {
        let settings = self.settings;
        for (flag, reason) in &self.ignored {
            tracing::warn!(flag, reason, "flag has no effect");
        }
        for name in settings.serving.tls.unsupported() {
            tracing::warn!(name, "cipher suite or key exchange group is not supported");
        }
        let cluster = setup.cluster;
        let clock = Clock::system();
        let mut kubelets = KubeletAccess::new(
            &settings,
            &cluster.config,
            &cluster.hooks,
            SystemTime::now(),
        )?;
        let token_metrics = TokenMetrics::register(setup.metrics);
        let token = match kubelets.renewed.take() {
            Some((token, account)) => {
                let requests = TokenRequests::new(cluster.client()?, account);
                renew_token(Arc::clone(&token), requests, token_metrics, setup)?;
                Some(token)
            }
            None => None,
        };

        let (publisher, api) = MetricsApi::pair(MetricsApiConfig::default());
        let mut store = UsageStore::new(settings.usage);
        store.add_publisher(Arc::new(publisher));
        let store = Arc::new(store);

        let metrics = &mut *setup.metrics;
        let scrape_metrics = ScrapeMetrics::register(metrics, settings.usage.resolution);
        store.metrics().register(metrics.root());
        api.register(metrics);
        let api_metrics = ApiServerMetrics::register(metrics);

        checks::register_inherited(setup.health)?;
        // Before the first scrape: the store ignores batches of nodes that it does not know.
        follow(setup.tasks, watches, &settings.node_filter, &store, &clock);
        let sink = Arc::new(UsageSink {
            store: Arc::clone(&store),
            clock: clock.clone(),
        });
        let refreshed = kubelets.refreshed.clone();
        let scraping = ScrapingThread::start().context("cannot start the scraping thread")?;
        let mut config = scrape_config(&settings, kubelets, clock.clone());
        if settings.kubelet.kubelet_use_proxy {
            config.proxy = proxy::for_kubelets(proxy::rules_of_environment())?;
        }
        let start = || {
            Scraper::start(
                first_inputs(watches.pods.clone(), token),
                config,
                &watches.nodes,
                sink,
                scrape_metrics,
            )
        };
        let scraper = scraping.enter(start).map_err(RunError::runtime)?;
        let scraper = Arc::new(scraper);
        setup.tasks.spawn("scrape-nodes", scraper.failed());
        setup.tasks.spawn(
            "scrape-started-pods",
            trigger_scrapes(watches.pods.subscribe(), trigger(&scraper)),
        );
        scraper.add_livez(setup.health).map_err(RunError::runtime)?;
        scraper
            .add_readyz(setup.health)
            .map_err(RunError::runtime)?;
        let checks = checks::Sources::new(&watches.nodes, &watches.pods);
        Ok(RunningServer {
            settings,
            cluster: Arc::clone(cluster),
            clock,
            api,
            store,
            api_metrics,
            checks,
            scraper,
            scraping,
            refreshed,
        })
    }
}

fn scrape_config(settings: &Settings, kubelets: KubeletAccess, clock: Clock) -> ScrapeConfig {
    let flags = &settings.kubelet;
    let mut config = ScrapeConfig::new(kubelets.transport, kubelets.credentials);
    config.resolution = settings.usage.resolution;
    config.timeout = settings.kubelet_timeout;
    config.address_types.clone_from(&settings.address_types);
    config.port = flags.kubelet_port;
    config.use_node_status_port = flags.kubelet_use_node_status_port;
    // The flag says that it is insecure, and metrics-server sends the token too.
    config.token_to_unverified = flags.kubelet_insecure_tls;
    config.pin_keys = flags.kubelet_pin_certificates;
    config.allow_http = flags.kubelet_allow_http;
    config.filter = settings.node_filter.clone();
    // Two scrapes within the limit, so that one that is lost leaves no gap.
    config.max_resolution = settings.usage.staleness / 2;
    config.ephemeral_storage = settings.usage.extra.ephemeral_storage;
    config.memory_limit = settings.scrape_memory;
    config.compression = settings.compression;
    config.max_connections = OpenFiles::current().kubelets;
    config.clock = clock;
    config
}

/// Waits for the first list of pods, and for the token for kubelets.
async fn first_inputs<P: PodKind>(pods: Reflector<P>, token: Option<Arc<RenewedToken>>) {
    let first_token = async {
        if let Some(token) = token {
            // Its readiness check has the reason if there is none.
            let _ = timeout(POD_LIST_TIMEOUT, token.issued()).await;
        }
    };
    tokio::join!(first_pod_list(pods), first_token);
}

/// Waits for the first list of pods. The samples of a pod that is not listed yet are held with all
/// their names, and those of a large cluster would be the peak of the program's memory.
async fn first_pod_list<P: PodKind>(pods: Reflector<P>) {
    wait_for_list(pods.synced()).await;
}

/// Waits for a list, but not for longer than the limit.
async fn wait_for_list(listed: impl Future<Output = bool>) {
    if timeout(POD_LIST_TIMEOUT, listed).await.is_err() {
        tracing::warn!("pods are not listed yet, scraping nodes without them");
    }
}

/// Requests the token for kubelets and renews it, with a readiness check.
fn renew_token(
    token: Arc<RenewedToken>,
    requests: TokenRequests,
    metrics: TokenMetrics,
    setup: &Setup<'_>,
) -> Result<(), RunError> {
    let checked = Arc::clone(&token);
    setup
        .health
        .failure_check("kubelet-token", Probe::READINESS, move || checked.status())
        .map_err(RunError::runtime)?;
    let outage = setup.cluster.outage.clone();
    setup.tasks.spawn("renew-kubelet-token", async move {
        let rng = Rng::random();
        token.renew(&requests, &metrics, &outage, rng).await;
    });
    Ok(())
}

/// Keeps the store in sync with the cluster.
fn follow<P: PodKind>(
    tasks: &TaskSet,
    watches: &ServerWatches<P>,
    filter: &NodeFilter,
    store: &Arc<UsageStore>,
    clock: &Clock,
) {
    let deps = || (Arc::clone(store), clock.clone());
    let (store, clock) = deps();
    let (nodes, filter) = (watches.nodes.subscribe(), filter.clone());
    tasks.spawn("follow-nodes", async move {
        follow_nodes(nodes, &filter, &store, &clock).await;
    });
    let (store, clock) = deps();
    let pods = watches.pods.subscribe();
    tasks.spawn("follow-pods", async move {
        follow_pods(pods, &store, &clock).await;
    });
    let (store, clock) = deps();
    tasks.spawn("expire-usage", async move {
        let mut ticks = tokio::time::interval(EXPIRY_INTERVAL);
        loop {
            ticks.tick().await;
            store.expire(clock.moment());
        }
    });
}

/// Returns a function that triggers a scrape of a node, as long as there is a scraper.
fn trigger(scraper: &Arc<Scraper>) -> impl Fn(&str) -> ControlFlow<()> + Send + use<> {
    let scraper = Arc::downgrade(scraper);
    move |node| match scraper.upgrade() {
        Some(scraper) => {
            scraper.trigger(node);
            ControlFlow::Continue(())
        }
        None => ControlFlow::Break(()),
    }
}

/// Scrapes a node soon after a pod on it has started.
async fn trigger_scrapes<P: PodKind>(
    mut pods: Subscription<P>,
    trigger: impl Fn(&str) -> ControlFlow<()>,
) {
    while let Some(update) = pods.next().await {
        let Update::Change(change) = update else {
            continue;
        };
        let Some(node) = node_of_started_pod(&change.event) else {
            continue;
        };
        if trigger(node).is_break() {
            return;
        }
    }
}

/// The node of a pod that has just started, which its kubelet has not reported yet.
fn node_of_started_pod<P: PodKind>(event: &ObjectEvent<P>) -> Option<&str> {
    let (pod, before) = match event {
        ObjectEvent::Added(now) => (now.summary(), None),
        ObjectEvent::Modified { before, now } => (now.summary(), Some(before.summary().phase)),
        ObjectEvent::Deleted(_) => return None,
    };
    let started = pod.phase == PodPhase::Running && before != Some(PodPhase::Running);
    pod.node.as_deref().filter(|_| started)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kubevitals_model::PodSummary;
    use kubevitals_watch::{Decoder, decode_object};
    use tokio::time::Instant;

    use super::*;

    fn pod(node: Option<&str>, phase: &str) -> Arc<PodSummary> {
        let json = serde_json::json!({
            "metadata": {"name": "web-0", "namespace": "default", "uid": "1"},
            "spec": {"nodeName": node},
            "status": {"phase": phase},
        });
        let decoder = Decoder::default();
        Arc::new(decode_object(json.to_string().as_bytes(), &decoder).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn scraping_waits_for_the_list_of_pods_for_30_seconds() {
        let start = Instant::now();
        wait_for_list(std::future::ready(true)).await;
        assert_eq!(start.elapsed(), Duration::ZERO);
        let listed = async {
            tokio::time::sleep(Duration::from_secs(29)).await;
            true
        };
        wait_for_list(listed).await;
        assert_eq!(start.elapsed(), Duration::from_secs(29));
        wait_for_list(std::future::pending()).await;
        assert_eq!(start.elapsed(), Duration::from_secs(59));
    }

    #[test]
    fn only_a_pod_that_starts_to_run_triggers_a_scrape_of_its_node() {
        let running = || pod(Some("n1"), "Running");
        let modified = |before| ObjectEvent::Modified {
            before,
            now: running(),
        };
        let node = |event: &ObjectEvent<PodSummary>| node_of_started_pod(event).map(str::to_owned);
        let n1 = Some("n1".to_owned());
        assert_eq!(node(&ObjectEvent::Added(running())), n1);
        assert_eq!(node(&modified(pod(Some("n1"), "Pending"))), n1);
        assert_eq!(node(&modified(running())), None);
        assert_eq!(node(&ObjectEvent::Deleted(running())), None);
        let pending = pod(Some("n1"), "Pending");
        assert_eq!(node(&ObjectEvent::Added(pending)), None);
        assert_eq!(node(&ObjectEvent::Added(pod(None, "Running"))), None);
    }
}
