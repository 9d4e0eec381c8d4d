//! The set of scraped nodes, with a loop for each.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use kubevitals_model::{Node, NodeName};
use kubevitals_telemetry::{Health, Probe, Status, TelemetryError};
use kubevitals_watch::{Change, Mirror, ObjectEvent, Reflector, Subscription};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::config::{ConfigError, ScrapeConfig};
use crate::inner::ScraperInner;
use crate::metrics::ScrapeMetrics;
use crate::node::{Control, NodeLoop};
use crate::sink::ScrapeSink;
use crate::target::Target;

/// Scrapes all kubelets of a cluster. Dropping it stops it without waiting.
pub struct Scraper {
    inner: Arc<ScraperInner>,
    loops: Arc<NodeLoops>,
    task: JoinHandle<()>,
    failed: watch::Receiver<bool>,
}

/// Number of nodes by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeCounts {
    /// No scrape has completed yet.
    pub new: usize,
    /// The last scrape succeeded.
    pub ok: usize,
    /// The last scrape failed.
    pub failing: usize,
}

type NodeLoops = Mutex<HashMap<Arc<str>, RunningLoop>>;

struct RunningLoop {
    control: Arc<Control>,
    task: JoinHandle<()>,
}

/// Reports a task that panics. One that is aborted is not reported.
#[derive(Clone)]
struct PanicGuard(watch::Sender<bool>);

impl Scraper {
    /// Starts to scrape the nodes of a watch, which keeps [`ANNOTATIONS`](crate::ANNOTATIONS), once
    /// `ready` completes: the sink may not be able to use samples before. Must be called within a
    /// runtime.
    pub fn start(
        ready: impl Future<Output = ()> + Send + 'static,
        config: ScrapeConfig,
        nodes: &Reflector<Node>,
        sink: Arc<dyn ScrapeSink>,
        metrics: ScrapeMetrics,
    ) -> Result<Self, ConfigError> {
        config.validate()?;
        let inner = Arc::new(ScraperInner::new(config, sink, metrics));
        let loops = Arc::new(NodeLoops::default());
        let updates = nodes.subscribe();
        let (report, failed) = watch::channel(false);
        let task = {
            let (inner, loops) = (Arc::clone(&inner), Arc::clone(&loops));
            let guard = PanicGuard(report);
            tokio::spawn(async move {
                ready.await;
                follow_nodes(updates, inner, loops, &guard).await;
                guard.0.send_replace(true);
            })
        };
        Ok(Self {
            inner,
            loops,
            task,
            failed,
        })
    }

    /// Returns a future that completes once a loop has panicked or the watch of nodes has ended. It
    /// does not complete on [`Scraper::shutdown`].
    pub fn failed(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut failed = self.failed.clone();
        async move {
            if failed.wait_for(|failed| *failed).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Scrapes a node soon, since a pod on it became Running. How often this has an effect is
    /// limited; nodes that are not scraped are ignored.
    pub fn trigger(&self, node: &str) {
        if let Some(running) = self.loops.lock().get(node) {
            running.control.trigger();
        }
    }

    /// Returns the number of nodes by state.
    pub fn counts(&self) -> NodeCounts {
        self.inner.metrics.counts()
    }

    /// Adds the liveness check `metric-collection-timely`: it fails if no scrape of any node was
    /// started for one and a half resolutions after one was due.
    pub fn add_livez(&self, health: &Health) -> Result<(), TelemetryError> {
        let inner = Arc::downgrade(&self.inner);
        health.check(
            "metric-collection-timely",
            Probe::LIVENESS,
            move || match inner.upgrade() {
                Some(inner) => check_timely(&inner, Instant::now()),
                None => Status::failing("scraper has stopped"),
            },
        )
    }

    /// Adds the readiness check `kubelet-connections`. It passes, and warns if the limit of
    /// connections is lower than the number of nodes.
    pub fn add_readyz(&self, health: &Health) -> Result<(), TelemetryError> {
        let inner = Arc::downgrade(&self.inner);
        health.failure_check("kubelet-connections", Probe::READINESS, move || {
            let inner = inner.upgrade();
            let kept = inner.as_ref().and_then(|inner| inner.slots.in_turns());
            let (Some(inner), Some(kept)) = (inner, kept) else {
                return Status::Ok;
            };
            let nodes = inner.metrics.counts().total();
            Status::warning(format!(
                "{kept} of {nodes} nodes keep a connection, the others connect in turns: raise the hard limit of open files"
            ))
        })
    }

    /// Stops all scrapes and waits until they have ended.
    pub async fn shutdown(mut self) {
        self.task.abort();
        // It was cancelled.
        let _ = (&mut self.task).await;
        let running: Vec<RunningLoop> = self
            .loops
            .lock()
            .drain()
            .map(|(_, running)| running)
            .collect();
        for RunningLoop { task, .. } in &running {
            task.abort();
        }
        for RunningLoop { task, .. } in running {
            let _ = task.await;
        }
    }
}

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.send_replace(true);
        }
    }
}

impl NodeCounts {
    /// Returns the number of all scraped nodes.
    pub fn total(&self) -> usize {
        self.new + self.ok + self.failing
    }
}

impl Drop for Scraper {
    fn drop(&mut self) {
        self.task.abort();
        for running in self.loops.lock().values() {
            running.task.abort();
        }
    }
}

impl fmt::Debug for Scraper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scraper")
            .field("nodes", &self.counts())
            .finish_non_exhaustive()
    }
}

async fn follow_nodes(
    mut updates: Subscription<Node>,
    inner: Arc<ScraperInner>,
    loops: Arc<NodeLoops>,
    guard: &PanicGuard,
) {
    let mut mirror = Mirror::new();
    let mut excluded = HashSet::new();
    while let Some(update) = updates.next().await {
        for Change { event, .. } in mirror.apply(update, inner.config.clock.now()) {
            let (node, exclusion) = match event {
                ObjectEvent::Added(node) | ObjectEvent::Modified { now: node, .. } => {
                    let Some(reason) = inner.config.filter.exclusion(&node) else {
                        excluded.remove(&node.identity.name);
                        apply(&node, &inner, &loops, guard);
                        continue;
                    };
                    (node, Some(reason))
                }
                ObjectEvent::Deleted(node) => (node, None),
            };
            let name = &node.identity.name;
            remove(name, &loops).await;
            let Some(reason) = exclusion else {
                excluded.remove(name);
                continue;
            };
            if excluded.insert(Arc::clone(name)) {
                tracing::info!(node = &**name, %reason, "node is excluded from scraping");
            }
        }
        inner.metrics.set_excluded(excluded.len());
    }
}

/// Starts the loop of a node, or updates it.
fn apply(node: &Node, inner: &Arc<ScraperInner>, loops: &NodeLoops, guard: &PanicGuard) {
    let target = Arc::new(Target::new(node, &inner.config));
    let mut loops = loops.lock();
    let name = &node.identity.name;
    if let Some(running) = loops.get(name) {
        running.control.update(target);
        return;
    }
    let control = Arc::new(Control::new(Arc::clone(&target)));
    inner.scheduled(Instant::now());
    let node = NodeLoop::new(
        NodeName::new(Arc::clone(name)),
        target,
        Arc::clone(&control),
        Arc::clone(inner),
    );
    let guard = guard.clone();
    let run = Box::new(node).run();
    let task = tokio::spawn(async move {
        let _guard = guard;
        run.await;
    });
    loops.insert(Arc::clone(name), RunningLoop { control, task });
}

/// Stops the loop of a node and waits for its end: a new node of that name must not be reported
/// before.
async fn remove(name: &str, loops: &NodeLoops) {
    let running = loops.lock().remove(name);
    if let Some(RunningLoop { control, task }) = running {
        control.remove();
        if let Err(error) = task.await {
            tracing::error!(node = name, %error, "node loop panicked");
        }
    }
}

fn check_timely(inner: &ScraperInner, now: Instant) -> Status {
    let counts = inner.metrics.counts();
    let overdue = inner.overdue(now);
    let limit = inner.config.resolution + inner.config.resolution / 2;
    if counts.total() == 0 || overdue <= limit {
        return Status::Ok;
    }
    let overdue = Duration::from_secs(overdue.as_secs());
    Status::failing(format!(
        "all scrapes are overdue by {overdue:?} or more ({} nodes ok, {} failing, {} new)",
        counts.ok, counts.failing, counts.new
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Credentials, Transport};

    /// Unsupervised, a node whose loop panicked was never scraped again, with all checks passing.
    #[tokio::test]
    async fn a_task_that_panics_is_reported_and_one_that_is_aborted_is_not() {
        let (report, mut failed) = watch::channel(false);
        let guard = PanicGuard(report.clone());
        let aborted = tokio::spawn(async move {
            let _guard = guard;
            std::future::pending::<()>().await;
        });
        aborted.abort();
        assert!(aborted.await.unwrap_err().is_cancelled());
        assert!(!*failed.borrow());
        let guard = PanicGuard(report);
        tokio::spawn(async move {
            let _guard = guard;
            panic!("a bug");
        });
        failed.wait_for(|failed| *failed).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn liveness_fails_if_no_scrape_starts() {
        let config = ScrapeConfig::new(Transport::InsecureHttp, Credentials::None);
        let inner = ScraperInner::noop(config);
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(check_timely(&inner, at(3_600)), Status::Ok, "no nodes");
        let _node = inner.metrics.node(&NodeName::new("node-a"));
        inner.scheduled(at(60));
        inner.scheduled(at(15));
        assert_eq!(check_timely(&inner, at(82)), Status::Ok);
        let late = Status::failing(
            "all scrapes are overdue by 23s or more (0 nodes ok, 0 failing, 1 new)",
        );
        assert_eq!(check_timely(&inner, at(83)), late);
    }
}
