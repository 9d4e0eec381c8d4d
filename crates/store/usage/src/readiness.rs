//! Whether there is anything to serve, and what keeps the rest away.

use std::fmt;
use std::sync::Arc;

use hashbrown::HashMap;
use kubevitals_model::NodeName;

use crate::absence::Absence;

/// Reasons that are named; all nodes are counted.
const MAX_REASONS: usize = 3;

/// What is served of what there is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Readiness {
    /// Nodes that are to be asked.
    pub nodes_known: usize,
    /// Nodes of which usage is served.
    pub nodes_served: usize,
    /// Running pods on these nodes.
    pub pods_known: usize,
    /// Pods of which usage is served.
    pub pods_served: usize,
    /// The most frequent reasons why nodes are not served, each with the number of nodes, most
    /// first.
    pub reasons: Vec<Reason>,
}

/// Why so many nodes are not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// How many nodes.
    pub nodes: usize,
    /// The first of them by name.
    pub example: NodeName,
    /// What is wrong with them.
    pub why: Arc<str>,
}

/// Counts nodes by what is wrong with them.
#[derive(Debug, Default)]
pub(crate) struct Reasons(HashMap<Arc<str>, (usize, NodeName)>);

impl Reasons {
    pub(crate) fn add(&mut self, node: &NodeName, absence: Absence) {
        let why = match absence {
            Absence::NodeFails(failure)
            | Absence::Stale {
                failure: Some(failure),
                ..
            } => failure.why,
            // Without names and times, so that nodes with the same trouble are one reason.
            Absence::NodeNotAsked(_) => "not asked yet".into(),
            Absence::FirstSample { .. } => "only one sample so far".into(),
            Absence::NoRate { why, .. } => why.to_string().into(),
            Absence::ClockStepped { .. } => "the clock of the node jumped".into(),
            Absence::NoCpu { .. } => "no cpu time reported".into(),
            Absence::NoMemory { .. } => "no memory reported".into(),
            Absence::NotReported { .. } => "answers, but reports nothing of itself".into(),
            Absence::Stale { failure: None, .. } => "last value too old".into(),
            other => other.to_string().into(),
        };
        let (count, example) = self.0.entry(why).or_insert_with(|| (0, node.clone()));
        *count += 1;
        if node < example {
            *example = node.clone();
        }
    }

    pub(crate) fn most_frequent(self) -> Vec<Reason> {
        let reason = |(why, (nodes, example))| Reason {
            nodes,
            example,
            why,
        };
        let mut reasons: Vec<Reason> = self.0.into_iter().map(reason).collect();
        reasons
            .sort_unstable_by(|one, two| (two.nodes, &one.example).cmp(&(one.nodes, &two.example)));
        reasons.truncate(MAX_REASONS);
        reasons
    }
}

impl Readiness {
    /// Whether usage of at least one node, and of at least one pod if any runs, is served: what
    /// metrics-server calls ready, except that a cluster in which no pod runs does not wait for
    /// one.
    pub fn is_ready(&self) -> bool {
        self.nodes_served > 0 && (self.pods_served > 0 || self.pods_known == 0)
    }
}

impl fmt::Display for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_ready() {
            f.write_str("no metrics to serve: ")?;
        }
        write!(
            f,
            "{} of {} nodes and {} of {} running pods served",
            self.nodes_served, self.nodes_known, self.pods_served, self.pods_known
        )?;
        for (index, reason) in self.reasons.iter().enumerate() {
            f.write_str(if index == 0 { "; " } else { ", " })?;
            write!(f, "{} × {} ({})", reason.nodes, reason.why, reason.example)?;
        }
        Ok(())
    }
}
