//! Whether there is usage to serve, and why the rest has none.
//!
//! A check of readiness reads sums that are kept up to date, and no node: anonymous clients may
//! request it at any rate.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hashbrown::HashMap;
use kubevitals_model::NodeName;

use crate::absence::Absence;

/// Limit of the reasons listed; all nodes are counted.
const MAX_REASONS: usize = 3;

/// Part of the nodes, in percent, that have settled when a store has warmed up. A few of a large
/// cluster are always new or slow.
const SETTLED_PERCENT: usize = 99;

/// Maximum time of a warm-up after the first list of pods, with the wait for the slots.
const MAX_WARM_UP: Duration = Duration::from_secs(30);

/// Time after a resolution in which the nodes that have settled are scraped at their slots: a slot
/// that was closer than a second is left out, and a scrape takes time.
const SLOT_TOLERANCE: Duration = Duration::from_secs(2);

/// The numbers of nodes and pods with usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Nodes to scrape.
    pub nodes: usize,
    /// Further nodes, which are excluded from scraping.
    pub nodes_excluded: usize,
    /// Nodes that have had usage or a failed scrape.
    pub nodes_settled: usize,
    pub nodes_served: usize,
    /// Running pods on the nodes to scrape.
    pub running_pods: usize,
    pub pods_served: usize,
}

/// Whether there is usage to serve, in numbers and reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readiness {
    pub counts: Counts,
    pub phase: Phase,
    /// The time until the nodes have been scraped at their slots in the resolution, and the same
    /// samples are served as by other replicas.
    pub until_slots: Duration,
    /// The most frequent reasons why nodes have no usage, at most a second old.
    pub reasons: Arc<[Reason]>,
}

/// The phases of a store after its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Nodes or pods are not listed yet.
    Listing,
    /// Most nodes are to be scraped for the first time.
    WarmingUp {
        /// The time after which the rest is not waited for.
        ends_in: Duration,
    },
    /// The store has warmed up. It stays so, whatever happens to nodes.
    Warm,
}

/// The progress of the start.
#[derive(Debug, Default)]
pub(crate) struct WarmUp {
    nodes_listed: AtomicBool,
    /// The monotonic time of the first list of pods.
    pods_listed: OnceLock<Duration>,
    is_over: AtomicBool,
    /// The monotonic time at which the warm-up was found to be over.
    ended: OnceLock<Duration>,
}

/// A reason why nodes have no usage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    pub nodes: usize,
    /// The first of them by name.
    pub example: NodeName,
    pub text: Arc<str>,
}

/// Counts nodes by reason.
#[derive(Debug, Default)]
pub(crate) struct Reasons(HashMap<Arc<str>, (usize, NodeName)>);

impl Reasons {
    pub(crate) fn add(&mut self, node: &NodeName, absence: Absence) {
        let text = match absence {
            Absence::ScrapeFailed(failure)
            | Absence::Stale {
                failure: Some(failure),
                ..
            } => failure.reason,
            // Without names and times, so that they are the same for several nodes.
            Absence::NodeNotScraped(_) => "not scraped yet".into(),
            Absence::FirstSample { .. } => "only one sample so far".into(),
            Absence::NoRate { reason, .. } => reason.to_string().into(),
            Absence::ClockStepped { .. } => "the clock of the node jumped".into(),
            Absence::NoCpu { .. } => "no CPU time reported".into(),
            Absence::NoMemory { .. } => "no memory reported".into(),
            Absence::NotReported { .. } => "no usage of the node reported".into(),
            Absence::Stale { failure: None, .. } => "last usage is stale".into(),
            other => other.to_string().into(),
        };
        let (count, example) = self.0.entry(text).or_insert_with(|| (0, node.clone()));
        *count += 1;
        if node < example {
            *example = node.clone();
        }
    }

    pub(crate) fn most_frequent(self) -> Arc<[Reason]> {
        let reason = |(text, (nodes, example))| Reason {
            nodes,
            example,
            text,
        };
        let mut reasons: Vec<Reason> = self.0.into_iter().map(reason).collect();
        reasons
            .sort_unstable_by(|one, two| (two.nodes, &one.example).cmp(&(one.nodes, &two.example)));
        reasons.truncate(MAX_REASONS);
        reasons.into()
    }
}

impl WarmUp {
    pub(crate) fn nodes_listed(&self) {
        self.nodes_listed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn pods_listed(&self, now: Duration) {
        self.pods_listed.get_or_init(|| now);
    }

    /// Returns the phase, which is warm from the first time on.
    pub(crate) fn phase(&self, counts: &Counts, now: Duration) -> Phase {
        if self.is_over.load(Ordering::Relaxed) {
            return Phase::Warm;
        }
        let Some(listed) = self.pods_listed.get() else {
            return Phase::Listing;
        };
        if !self.nodes_listed.load(Ordering::Relaxed) {
            return Phase::Listing;
        }
        let ends_in = MAX_WARM_UP.saturating_sub(now.saturating_sub(*listed));
        if !counts.have_settled() && !ends_in.is_zero() {
            return Phase::WarmingUp { ends_in };
        }
        // Without nodes there was nothing to wait for, but there may be soon.
        if counts.nodes > 0 {
            self.ended.get_or_init(|| now);
            self.is_over.store(true, Ordering::Relaxed);
        }
        Phase::Warm
    }

    /// Returns the time until all nodes that have settled are scraped at their slots.
    ///
    /// It counts against the maximum time of a warm-up, unless a resolution is longer. That gives
    /// up nothing for nodes whose first usage came a resolution and the tolerance before the end;
    /// later ones only follow a warm-up that is unusually slow.
    pub(crate) fn until_slots(&self, resolution: Duration, now: Duration) -> Duration {
        let wait = resolution + SLOT_TOLERANCE;
        let left = |limit: Duration, from: Option<&Duration>| {
            let since = from.map(|from| now.saturating_sub(*from));
            limit.saturating_sub(since.unwrap_or_default())
        };
        left(wait, self.ended.get()).min(left(wait.max(MAX_WARM_UP), self.pods_listed.get()))
    }
}

impl Counts {
    fn have_settled(&self) -> bool {
        self.nodes_settled.saturating_mul(100) >= self.nodes.saturating_mul(SETTLED_PERCENT)
    }

    /// Whether there is something to serve, or nothing that could be served.
    fn have_usage(&self) -> bool {
        let is_served = self.nodes_served > 0 && (self.pods_served > 0 || self.running_pods == 0);
        is_served || (self.nodes == 0 && self.nodes_excluded > 0)
    }
}

impl Readiness {
    /// Whether the store has warmed up, and at least one node has usage, and at least one pod if
    /// any is running. As in metrics-server, except that a cluster without running pods is ready,
    /// one whose nodes are all excluded too, and that a new store is not ready with its first pod.
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Warm && self.counts.have_usage()
    }
}

impl fmt::Display for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = &self.counts;
        match self.phase {
            Phase::Listing => f.write_str("waiting for the lists of nodes and pods: ")?,
            Phase::WarmingUp { ends_in } => write!(
                f,
                "waiting for first scrapes: {} of {} nodes done, ready at {SETTLED_PERCENT} % or in {} s: ",
                counts.nodes_settled,
                counts.nodes,
                ends_in.as_secs_f64().ceil()
            )?,
            Phase::Warm if counts.have_usage() => {}
            Phase::Warm => f.write_str("no metrics to serve: ")?,
        }
        write!(
            f,
            "{} of {} nodes and {} of {} running pods have metrics",
            counts.nodes_served, counts.nodes, counts.pods_served, counts.running_pods
        )?;
        if counts.nodes_excluded > 0 {
            write!(f, ", {} nodes are excluded", counts.nodes_excluded)?;
        }
        for (index, reason) in self.reasons.iter().enumerate() {
            f.write_str(if index == 0 { "; " } else { ", " })?;
            write!(f, "{} × {} ({})", reason.nodes, reason.text, reason.example)?;
        }
        Ok(())
    }
}
