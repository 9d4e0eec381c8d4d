//! From the open watches to the end of the role.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_cli::{RunError, Shutdown};
use kubevitals_model::Clock;
use kubevitals_probes::Scheduler;
use kubevitals_telemetry::{Health, Metrics, Page, Probe, Status};
use tokio::time::Instant;

use crate::cluster_mode::{ClusterMode, ClusterSettings, ClusterWatches};
use crate::fan_out::Providers;
use crate::leadership::{Leadership, LeaseClient};
use crate::liveness::Heartbeat;
use crate::metrics::{RoleMetrics, TickResult};
use crate::node_mode::{NodeMode, NodeSettings, NodeWatches};
use crate::probe_board::ProbeBoard;
use crate::ticker::Ticker;

/// Readiness tolerates a lost connection for this long.
const RECONNECT_TIMEOUT: Duration = Duration::from_mins(1);

/// Part of the grace period reserved for what follows the flush of providers.
const SHUTDOWN_RESERVE: Duration = Duration::from_secs(2);

/// What is observed.
pub enum Mode {
    Cluster {
        settings: ClusterSettings,
        watches: ClusterWatches,
        /// `None` without leader election.
        leases: Option<Box<LeaseClient>>,
    },
    Node {
        settings: NodeSettings,
        watches: NodeWatches,
    },
}

/// The dependencies of the role.
pub struct Deps {
    pub shutdown: Shutdown,
    pub clock: Clock,
    pub providers: Providers,
    pub board: Arc<ProbeBoard>,
    /// Runs probes, and reports to the board; `None` for none.
    pub scheduler: Option<Arc<Scheduler>>,
    pub registered: Registered,
    /// Time between two reports.
    pub interval: Duration,
    /// Time within which the role must end once shutdown is requested.
    pub grace: Duration,
}

/// The registered metrics of the role.
#[derive(Debug, Clone)]
pub struct Registered {
    metrics: RoleMetrics,
    heartbeat: Heartbeat,
}

enum Observer {
    Cluster(ClusterMode, ClusterWatches),
    Node(NodeMode, NodeWatches),
}

impl Registered {
    /// Registers the metrics. `name` is that of the mode.
    pub fn new(
        metrics: &mut Metrics,
        name: &'static str,
        clock: Clock,
        interval: Duration,
    ) -> Self {
        Self {
            metrics: RoleMetrics::register(metrics),
            heartbeat: Heartbeat::new(name, clock, interval),
        }
    }

    /// The page `/liveness`.
    pub fn liveness(&self) -> Page {
        self.heartbeat.page()
    }

    /// Adds the health checks of the role. Readiness of node mode is what says that a node is not
    /// silent.
    pub fn add_checks(&self, health: &Health, mode: &Mode) -> Result<(), RunError> {
        let add = |name, probes, check: Box<dyn Fn() -> Status + Send + Sync>| {
            health.check(name, probes, check).map_err(RunError::runtime)
        };
        let heartbeat = self.heartbeat.clone();
        add("ticks", Probe::ALL, Box::new(move || heartbeat.status()))?;
        match mode {
            Mode::Cluster { watches, .. } => {
                add(
                    "nodes",
                    Probe::READINESS,
                    Box::new(watches.nodes.health_check(RECONNECT_TIMEOUT)),
                )?;
                add(
                    "daemonsets",
                    Probe::READINESS,
                    Box::new(watches.daemon_sets.health_check(RECONNECT_TIMEOUT)),
                )?;
                add(
                    "deployments",
                    Probe::READINESS,
                    Box::new(watches.deployments.health_check(RECONNECT_TIMEOUT)),
                )
            }
            Mode::Node { watches, .. } => {
                add(
                    "node",
                    Probe::READINESS,
                    Box::new(watches.node.health_check(RECONNECT_TIMEOUT)),
                )?;
                add(
                    "pods",
                    Probe::READINESS,
                    Box::new(watches.pods.health_check(RECONNECT_TIMEOUT)),
                )
            }
        }
    }
}

/// Reports until shutdown is requested. Then it waits for probes in progress, flushes the
/// providers, releases the Lease and ends the watches, all within the grace period.
pub async fn run(mode: Mode, deps: Deps) -> Result<(), RunError> {
    let Deps {
        mut shutdown,
        clock,
        providers,
        board,
        scheduler,
        registered,
        interval,
        grace,
    } = deps;
    let (mut observer, mut leadership) = match mode {
        Mode::Cluster {
            settings,
            watches,
            leases,
        } => {
            let leadership = match leases {
                Some(leases) => Leadership::start(*leases)?,
                None => Leadership::alone(),
            };
            let mode = ClusterMode::new(settings, providers.cluster(), clock.now());
            (Observer::Cluster(mode, watches), leadership)
        }
        Mode::Node { settings, watches } => {
            let mode = NodeMode::new(settings, interval, providers.node(), Arc::clone(&board));
            (Observer::Node(mode, watches), Leadership::alone())
        }
    };
    let Registered { metrics, heartbeat } = registered;
    let mut ticker = Ticker::new(interval);
    let mut has_recorded = false;
    let result = loop {
        let is_leader = leadership.is_leader();
        metrics.leader.set(i64::from(is_leader));
        tokio::select! {
            () = shutdown.requested() => break Ok(()),
            changed = leadership.changed() => {
                if let Err(error) = changed {
                    break Err(error);
                }
                observer.follow(leadership.is_leader(), &clock);
                if leadership.is_leader() {
                    tracing::info!("acquired the lease: reporting for the cluster");
                }
            }
            () = observer.synced(), if !has_recorded && is_leader => {
                // The first tick is not lost because the lists took a moment.
                let result = observer.tick(is_leader, &board, &clock).await;
                metrics.record(result, &clock);
                has_recorded = true;
            }
            () = ticker.due() => {
                heartbeat.beat();
                let started = Instant::now();
                let ticked = ticker.tick(observer.tick(is_leader, &board, &clock)).await;
                metrics.duration.observe(started.elapsed().as_secs_f64());
                metrics.missed.inc_by(ticked.missed);
                if ticked.missed > 0 {
                    tracing::warn!(missed = ticked.missed, "missed ticks");
                }
                let result = ticked.result.unwrap_or(TickResult::TimedOut);
                has_recorded |= result == TickResult::Recorded;
                metrics.record(result, &clock);
            }
        }
    };
    let end = Instant::now() + grace.saturating_sub(SHUTDOWN_RESERVE);
    let remaining = || end.saturating_duration_since(Instant::now());
    if let Some(scheduler) = scheduler {
        let drained = scheduler.shutdown(remaining() / 2).await;
        if drained.abandoned > 0 {
            tracing::warn!(abandoned = drained.abandoned, "ended probes in progress");
        }
    }
    providers.shutdown(remaining()).await;
    leadership.release().await?;
    observer.shutdown().await;
    result
}

impl RoleMetrics {
    fn record(&self, result: TickResult, clock: &Clock) {
        self.count(result);
        if result == TickResult::Recorded {
            self.last_recorded.set(clock.now().unix_seconds());
        }
    }
}

impl Observer {
    fn follow(&mut self, is_leader: bool, clock: &Clock) {
        if let Self::Cluster(mode, _) = self {
            mode.follow(is_leader, clock.now());
        }
    }

    /// Waits until all objects are listed. Waits for ever if a watch has ended: its supervisor ends
    /// the process.
    async fn synced(&self) {
        let is_synced = match self {
            Self::Cluster(_, watches) => {
                let probers = async {
                    match &watches.probers {
                        Some(probers) => probers.synced().await,
                        None => true,
                    }
                };
                watches.nodes.synced().await
                    && watches.daemon_sets.synced().await
                    && watches.deployments.synced().await
                    && probers.await
            }
            Self::Node(_, watches) => watches.node.synced().await && watches.pods.synced().await,
        };
        if !is_synced {
            std::future::pending::<()>().await;
        }
    }

    /// Records the present state, and the statistics of probes.
    #[expect(
        clippy::unused_async,
        reason = "a tick has a deadline, whatever it will wait for"
    )]
    async fn tick(&mut self, is_leader: bool, board: &ProbeBoard, clock: &Clock) -> TickResult {
        let now = clock.now();
        let result = match self {
            Self::Cluster(mode, watches) => mode.tick(watches.objects().as_ref(), is_leader, now),
            Self::Node(mode, watches) => mode.tick(watches.objects(mode.name()).as_ref(), now),
        };
        // Of several replicas in cluster mode each runs all probes, and one reports them.
        if is_leader {
            board.report(now);
        }
        result
    }

    async fn shutdown(&self) {
        match self {
            Self::Cluster(_, watches) => watches.shutdown().await,
            Self::Node(_, watches) => watches.shutdown().await,
        }
    }
}
