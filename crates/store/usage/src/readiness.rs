//! Whether there is usage to serve, and why the rest has none.

use std::fmt;
use std::sync::Arc;

use hashbrown::HashMap;
use kubevitals_model::NodeName;

use crate::absence::Absence;

/// Limit of the reasons listed; all nodes are counted.
const MAX_REASONS: usize = 3;

/// The numbers of nodes and pods with usage.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Readiness {
    pub nodes: usize,
    pub nodes_served: usize,
    /// Running pods on these nodes.
    pub running_pods: usize,
    pub pods_served: usize,
    /// The most frequent reasons why nodes have no usage.
    pub reasons: Vec<Reason>,
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

    pub(crate) fn most_frequent(self) -> Vec<Reason> {
        let reason = |(text, (nodes, example))| Reason {
            nodes,
            example,
            text,
        };
        let mut reasons: Vec<Reason> = self.0.into_iter().map(reason).collect();
        reasons
            .sort_unstable_by(|one, two| (two.nodes, &one.example).cmp(&(one.nodes, &two.example)));
        reasons.truncate(MAX_REASONS);
        reasons
    }
}

impl Readiness {
    /// Whether at least one node has usage, and at least one pod if any is running. As in
    /// metrics-server, except that a cluster without running pods is ready.
    pub fn is_ready(&self) -> bool {
        self.nodes_served > 0 && (self.pods_served > 0 || self.running_pods == 0)
    }
}

impl fmt::Display for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_ready() {
            f.write_str("no metrics to serve: ")?;
        }
        write!(
            f,
            "{} of {} nodes and {} of {} running pods have metrics",
            self.nodes_served, self.nodes, self.pods_served, self.running_pods
        )?;
        for (index, reason) in self.reasons.iter().enumerate() {
            f.write_str(if index == 0 { "; " } else { ", " })?;
            write!(f, "{} × {} ({})", reason.nodes, reason.text, reason.example)?;
        }
        Ok(())
    }
}
