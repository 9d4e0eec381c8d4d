//! Starts grouped by image, node, workload or node pool.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::{StartOutcome, StartStats, Statistic};
use crate::record::PodRecord;
use crate::workload::Workload;

/// The default limit of groups.
pub const MAX_GROUPS: usize = 20_000;

/// What starts are grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GroupBy {
    Image,
    Node,
    Workload,
    Pool,
}

/// Starts by group.
#[derive(Debug)]
pub struct StartGroups {
    by: GroupBy,
    groups: HashMap<Arc<str>, StartStats>,
    limit: usize,
    /// Starts of groups beyond the limit.
    pub left_out: usize,
}

impl GroupBy {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Node => "node",
            Self::Workload => "workload",
            Self::Pool => "pool",
        }
    }
}

impl StartGroups {
    pub fn new(by: GroupBy, limit: usize) -> Self {
        Self {
            by,
            groups: HashMap::new(),
            limit,
            left_out: 0,
        }
    }

    /// Counts a start in its groups; `pool` is that of its node. A start counts
    /// once for each of its images.
    pub fn add(&mut self, record: &PodRecord, pool: Option<&str>) {
        let outcome = StartOutcome::of(record);
        let took = record.total();
        let pod: Arc<str> = record.pod.summary.identity.to_string().into();
        for name in self.names(record, pool) {
            if !self.groups.contains_key(&*name) && self.groups.len() >= self.limit {
                self.left_out += 1;
                continue;
            }
            let stats = self.groups.entry(name).or_default();
            stats.count(outcome, took, &pod);
        }
    }

    /// The number of groups.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The slowest groups first: by the time that 95 of 100 pods took, or that one has waited.
    /// Groups of which neither is known are last.
    pub fn into_slowest(self, limit: usize) -> Vec<(Arc<str>, StartStats)> {
        let mut groups: Vec<(Option<Duration>, Arc<str>, StartStats)> = self
            .groups
            .into_iter()
            .map(|(name, stats)| {
                let took = stats.statistic(Statistic::P95).max(stats.longest_wait());
                (took, name, stats)
            })
            .collect();
        // `None` is less than any duration.
        groups.sort_by(|one, two| two.0.cmp(&one.0).then_with(|| one.1.cmp(&two.1)));
        groups.truncate(limit);
        let groups = groups.into_iter();
        groups.map(|(_, name, stats)| (name, stats)).collect()
    }

    fn names(&self, record: &PodRecord, pool: Option<&str>) -> Vec<Arc<str>> {
        let summary = &record.pod.summary;
        let name = match self.by {
            GroupBy::Image => {
                let images = record.containers.iter();
                let mut images: Vec<Arc<str>> =
                    images.filter_map(|one| one.image.clone()).collect();
                images.sort_unstable();
                images.dedup();
                return images;
            }
            GroupBy::Node => summary.node.clone().unwrap_or_else(|| "(no node)".into()),
            GroupBy::Pool => pool.unwrap_or("(no pool)").into(),
            GroupBy::Workload => {
                let identity = &summary.identity;
                let found = Workload::of(&record.pod);
                let (kind, name) =
                    found.map_or(("Pod", &*identity.name), |found| (found.kind, found.name));
                format!("{}/{name} ({kind})", identity.namespace).into()
            }
        };
        vec![name]
    }
}
