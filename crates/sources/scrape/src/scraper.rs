//! All nodes: which there are, and a loop for each.

use std::fmt;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use kubevitals_model::NodeName;
use kubevitals_telemetry::{Health, Probe, Status, TelemetryError};
use kubevitals_watch::{Change, Mirror, Node, Stream, Subscription, What};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::config::ScrapeConfig;
use crate::error::ScrapeError;
use crate::metrics::ScrapeMetrics;
use crate::node::{Control, NodeLoop};
use crate::receive::Receive;
use crate::shared::Shared;
use crate::target::{Target, is_selected};

/// Scrapes all kubelets of a cluster. Dropping it stops it without waiting.
pub struct Scraper {
    shared: Arc<Shared>,
    loops: Arc<Loops>,
    task: JoinHandle<()>,
}

/// How many nodes are in which state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeCounts {
    /// Nothing came of them yet, nor went wrong.
    pub new: usize,
    /// The last scrape was good.
    pub ok: usize,
    /// The last scrape failed.
    pub failing: usize,
}

#[derive(Default)]
struct Loops(Mutex<HashMap<Arc<str>, Running>>);

struct Running {
    control: Arc<Control>,
    task: JoinHandle<()>,
}

impl Scraper {
    /// Begins to scrape the nodes of a stream, which keeps
    /// [`RESOURCE_METRICS_PATH`](crate::RESOURCE_METRICS_PATH) among the annotations. Called within
    /// a runtime.
    pub fn start(
        config: ScrapeConfig,
        nodes: &Stream<Node>,
        receiver: Arc<dyn Receive>,
        metrics: ScrapeMetrics,
    ) -> Result<Self, ScrapeError> {
        Self::start_after(ready(()), config, nodes, receiver, metrics)
    }

    /// As [`Scraper::start`], once something else is done: whoever receives may not be able to use
    /// answers before.
    pub fn start_after(
        before: impl Future<Output = ()> + Send + 'static,
        config: ScrapeConfig,
        nodes: &Stream<Node>,
        receiver: Arc<dyn Receive>,
        metrics: ScrapeMetrics,
    ) -> Result<Self, ScrapeError> {
        config.validate()?;
        let shared = Arc::new(Shared::new(config, receiver, metrics));
        let loops = Arc::new(Loops::default());
        let updates = nodes.subscribe();
        let task = {
            let (shared, loops) = (Arc::clone(&shared), Arc::clone(&loops));
            tokio::spawn(async move {
                before.await;
                reconcile(updates, shared, loops).await;
            })
        };
        Ok(Self {
            shared,
            loops,
            task,
        })
    }

    /// Scrapes a node soon, since something on it has changed: a pod turned Running. How often is
    /// bounded; a node that is not scraped is passed over.
    pub fn nudge(&self, node: &str) {
        if let Some(running) = self.loops.lock().get(node) {
            running.control.nudge();
        }
    }

    /// How many nodes are in which state.
    pub fn counts(&self) -> NodeCounts {
        self.shared.metrics.counts()
    }

    /// Adds the liveness check `metric-collection-timely`: it fails if no scrape of any node was
    /// begun for one and a half resolutions after one was due.
    pub fn add_livez(&self, health: &Health) -> Result<(), TelemetryError> {
        let shared = Arc::downgrade(&self.shared);
        health.check(
            "metric-collection-timely",
            Probe::LIVENESS,
            move || match shared.upgrade() {
                Some(shared) => timely(&shared, Instant::now()),
                None => Status::failing("scraping has ended"),
            },
        )
    }

    /// Ends all scraping and waits until nothing of it is left.
    pub async fn shutdown(mut self) {
        self.task.abort();
        // Cancelled is how it should end.
        let _ = (&mut self.task).await;
        let running: Vec<Running> = self
            .loops
            .lock()
            .drain()
            .map(|(_, running)| running)
            .collect();
        for Running { task, .. } in &running {
            task.abort();
        }
        for Running { task, .. } in running {
            let _ = task.await;
        }
    }
}

impl NodeCounts {
    /// All nodes that are scraped.
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

impl Loops {
    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Running>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn reconcile(mut updates: Subscription<Node>, shared: Arc<Shared>, loops: Arc<Loops>) {
    let mut mirror = Mirror::new();
    while let Some(update) = updates.next().await {
        for Change { what, .. } in mirror.apply(update, shared.config.clock.now()) {
            match what {
                What::Added(node) | What::Modified { now: node, .. }
                    if is_selected(&node, &shared.config.node_selector) =>
                {
                    scrape(&node, &shared, &loops);
                }
                What::Added(node) | What::Modified { now: node, .. } | What::Deleted(node) => {
                    forget(&node.identity.name, &loops).await;
                }
            }
        }
    }
}

/// Begins the loop of a node, or tells it how the node is now.
fn scrape(node: &Node, shared: &Arc<Shared>, loops: &Loops) {
    let target = Arc::new(Target::of(node, &shared.config));
    let mut all = loops.lock();
    let name = &node.identity.name;
    if let Some(running) = all.get(name) {
        running.control.follow(target);
        return;
    }
    let control = Arc::new(Control::new(Arc::clone(&target)));
    shared.planned(Instant::now());
    let node = NodeLoop::new(
        NodeName::new(Arc::clone(name)),
        target,
        Arc::clone(&control),
        Arc::clone(shared),
    );
    let task = tokio::spawn(Box::new(node).run());
    all.insert(Arc::clone(name), Running { control, task });
}

/// Ends the loop of a node, and waits until it has: another node of that name must not be told of
/// before.
async fn forget(name: &str, loops: &Loops) {
    let running = loops.lock().remove(name);
    if let Some(Running { control, task }) = running {
        control.leave();
        if let Err(error) = task.await {
            tracing::error!(node = name, %error, "loop of a node ended badly");
        }
    }
}

fn timely(shared: &Shared, now: Instant) -> Status {
    let counts = shared.metrics.counts();
    let overdue = shared.overdue(now);
    let patience = shared.config.resolution + shared.config.resolution / 2;
    if counts.total() == 0 || overdue <= patience {
        return Status::Ok;
    }
    let whole = Duration::from_secs(overdue.as_secs());
    Status::failing(format!(
        "no scrape was begun for {whole:?} after one was due ({} nodes ok, {} failing, {} new)",
        counts.ok, counts.failing, counts.new
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::tests::shared;

    #[tokio::test(start_paused = true)]
    async fn scraping_that_stands_still_is_noticed() {
        let shared = shared();
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(timely(&shared, at(3_600)), Status::Ok, "there are no nodes");
        let _node = shared.metrics.node(&NodeName::new("node-a"));
        shared.planned(at(60));
        shared.planned(at(15));
        assert_eq!(timely(&shared, at(82)), Status::Ok);
        let late = Status::failing(
            "no scrape was begun for 23s after one was due (0 nodes ok, 0 failing, 1 new)",
        );
        assert_eq!(timely(&shared, at(83)), late);
    }
}
