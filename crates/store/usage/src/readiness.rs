//! Whether there is anything to serve, and what keeps the rest away.

use std::fmt;
use std::sync::Arc;

/// Reasons that are named; all nodes are counted.
pub(crate) const MOST_REASONS: usize = 3;

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
    /// The most frequent reasons why nodes are not served, each with the number of nodes, most first.
    pub reasons: Vec<Reason>,
}

/// Why so many nodes are not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// How many nodes.
    pub nodes: usize,
    /// One of them.
    pub example: Arc<str>,
    /// What is wrong with them.
    pub why: Arc<str>,
}

impl Readiness {
    /// Whether usage of at least one node, and of at least one pod if any runs, is served: what metrics-server calls
    /// ready, except that a cluster in which no pod runs does not wait for one.
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
