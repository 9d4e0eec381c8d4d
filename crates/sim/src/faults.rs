//! Faults of single nodes, changed at run time.
//!
//! [`Faults`] maps nodes to their faults; kubelets look them up for every connection and every
//! request. It is a handle: clones share the same faults. [`FaultSpec`] is its text form on the
//! command line, such as `hang=1%` or `slow:5s=node-00017`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;

use crate::seed::Seed;

mod parse;

pub use parse::{FaultParseError, MAX_HUGE_BYTES, MAX_SLOW};

/// A misbehaviour of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// Every response is delayed by this duration.
    Slow(Duration),
    /// Requests are accepted and never answered.
    Hang,
    /// The connection is reset (TCP RST) when a request arrives.
    Reset,
    /// Every request gets 401.
    Unauthorized,
    /// Every request gets 403.
    Forbidden,
    /// Every request gets 500.
    ServerError,
    /// `/metrics/resource` gets 404, as from a node without that endpoint.
    NotFound,
    /// Responses are 200 with random bytes.
    Garbage,
    /// Responses end in the middle of a line, before the announced length.
    Truncated,
    /// `/metrics/resource` is followed by this many bytes of further, valid series, which are
    /// streamed.
    Huge(u64),
    /// The series of the first pod occur twice, with different values.
    Duplicate,
    /// The node's clock is ahead by this many milliseconds, or behind if negative.
    ClockSkew(i64),
    /// The serving certificate is no longer valid.
    ExpiredCertificate,
    /// The serving certificate is for another host.
    WrongName,
    /// One line of `/metrics/resource` is malformed.
    MalformedLine,
    /// One series of `/metrics/resource` lacks its labels.
    UnlabelledSeries,
    /// One container of the first pod that has several lacks its CPU and memory series.
    MissingSibling,
    /// One container reports that it has never used any CPU.
    ZeroCpu,
}

/// The nodes that a fault affects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// All nodes.
    All,
    /// A share in hundredths of a percent, rounded up to whole nodes.
    Share(u32),
    /// A number of nodes.
    Count(usize),
    /// The node of this name.
    Node(String),
}

/// A fault and the nodes that it affects: `hang=1%`, `slow:5s=node-00017`, `500=3`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultSpec {
    pub fault: Fault,
    pub target: Target,
}

/// The faults of all nodes of a fleet.
#[derive(Debug, Clone)]
pub struct Faults {
    names: Arc<[Arc<str>]>,
    /// Only nodes with faults have an entry, so that a healthy fleet costs nothing.
    active: Arc<RwLock<BTreeMap<usize, BTreeSet<Fault>>>>,
}

impl Fault {
    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Slow(_) => "slow",
            Self::Hang => "hang",
            Self::Reset => "reset",
            Self::Unauthorized => "401",
            Self::Forbidden => "403",
            Self::ServerError => "500",
            Self::NotFound => "404",
            Self::Garbage => "garbage",
            Self::Truncated => "truncated",
            Self::Huge(_) => "huge",
            Self::Duplicate => "duplicate",
            Self::ClockSkew(_) => "skew",
            Self::ExpiredCertificate => "expired",
            Self::WrongName => "wrong-name",
            Self::MalformedLine => "malformed",
            Self::UnlabelledSeries => "unlabelled",
            Self::MissingSibling => "missing-sibling",
            Self::ZeroCpu => "zero-cpu",
        }
    }
}

impl FaultSpec {
    /// Whether the target requires at least one node, so that none is an error.
    pub fn requires_node(&self) -> bool {
        match self.target {
            Target::Node(_) => true,
            Target::Count(count) => count > 0,
            Target::All | Target::Share(_) => false,
        }
    }
}

impl Faults {
    /// Returns an empty set of faults for nodes of these names.
    pub fn new(names: impl IntoIterator<Item = Arc<str>>) -> Self {
        Self {
            names: names.into_iter().collect(),
            active: Arc::default(),
        }
    }

    /// Adds a fault to a node. A node may have several; a fault of the same kind is replaced.
    /// Returns whether the node exists.
    pub fn set(&self, node: &str, fault: Fault) -> bool {
        self.index(node)
            .map(|index| self.add(index, fault))
            .is_some()
    }

    /// Removes all faults of a node. Returns whether the node exists.
    pub fn clear(&self, node: &str) -> bool {
        self.index(node)
            .map(|index| self.write(|active| active.remove(&index)))
            .is_some()
    }

    /// Removes the faults of all nodes.
    pub fn clear_all(&self) {
        self.write(BTreeMap::clear);
    }

    /// Adds a fault to the nodes of `spec` and returns their names. The same seed selects the same
    /// nodes; different faults select different ones.
    pub fn apply(&self, spec: &FaultSpec, seed: Seed) -> Vec<Arc<str>> {
        let chosen = self.choose(spec, seed);
        for index in &chosen {
            self.add(*index, spec.fault);
        }
        chosen
            .iter()
            .filter_map(|index| self.names.get(*index).map(Arc::clone))
            .collect()
    }

    /// Returns the current faults of a node.
    pub fn of(&self, node: &str) -> Vec<Fault> {
        self.index(node)
            .map(|index| self.at(index))
            .unwrap_or_default()
    }

    /// Returns the faults of the node at this index of the names.
    pub(crate) fn at(&self, index: usize) -> Vec<Fault> {
        self.active
            .read()
            .get(&index)
            .map(|faults| faults.iter().copied().collect())
            .unwrap_or_default()
    }

    fn index(&self, node: &str) -> Option<usize> {
        self.names.iter().position(|name| **name == *node)
    }

    fn add(&self, index: usize, fault: Fault) {
        self.write(|active| {
            let faults = active.entry(index).or_default();
            faults.retain(|other| other.name() != fault.name());
            faults.insert(fault);
        });
    }

    fn write<T>(&self, change: impl FnOnce(&mut BTreeMap<usize, BTreeSet<Fault>>) -> T) -> T {
        change(&mut self.active.write())
    }

    fn choose(&self, spec: &FaultSpec, seed: Seed) -> Vec<usize> {
        let total = self.names.len();
        let count = match &spec.target {
            Target::All => total,
            Target::Node(name) => return self.index(name).into_iter().collect(),
            Target::Count(count) => (*count).min(total),
            Target::Share(share) => {
                let share = usize::try_from(*share).unwrap_or(usize::MAX);
                total.saturating_mul(share).div_ceil(10_000).min(total)
            }
        };
        let seed = seed.derive_name(spec.fault.name());
        let mut order: Vec<(u64, usize)> = (0..total)
            .map(|index| (seed.derive(index as u64).next(), index))
            .collect();
        order.sort_unstable();
        let mut chosen: Vec<usize> = order.into_iter().take(count).map(|(_, i)| i).collect();
        chosen.sort_unstable();
        chosen
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Slow(by) => write!(f, ":{}ms", by.as_millis()),
            Self::Huge(bytes) => write!(f, ":{bytes}"),
            Self::ClockSkew(by) => write!(f, ":{by}ms"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for FaultSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=", self.fault)?;
        match &self.target {
            Target::All => f.write_str("all"),
            Target::Share(share) => write!(f, "{}.{:02}%", share / 100, share % 100),
            Target::Count(count) => write!(f, "{count}"),
            Target::Node(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fleet(nodes: usize) -> Faults {
        Faults::new((0..nodes).map(|i| Arc::from(format!("node-{i:05}"))))
    }

    fn apply(faults: &Faults, text: &str) -> Vec<Arc<str>> {
        faults.apply(&text.parse().unwrap(), Seed::new(1))
    }

    #[test]
    fn targets_select_the_stated_number_of_nodes() {
        let faults = fleet(150);
        assert_eq!(apply(&faults, "hang=1%").len(), 2, "a share is rounded up");
        assert_eq!(apply(&faults, "500=3").len(), 3);
        assert_eq!(apply(&faults, "500=999").len(), 150);
        assert_eq!(apply(&faults, "401=all").len(), 150);
        assert_eq!(apply(&faults, "401=0%").len(), 0);
        assert_eq!(
            apply(&faults, "slow:5s=node-00017"),
            [Arc::from("node-00017")]
        );
        assert!(apply(&faults, "slow:5s=elsewhere").is_empty());
    }

    #[test]
    fn the_selection_depends_on_seed_and_fault() {
        let (one, other) = (fleet(1_000), fleet(1_000));
        assert_eq!(apply(&one, "hang=10"), apply(&other, "hang=10"));
        assert_ne!(apply(&one, "hang=10"), apply(&one, "reset=10"));
    }

    #[test]
    fn a_fault_replaces_one_of_its_kind_and_joins_others() {
        let faults = fleet(2);
        let slow = |seconds| Fault::Slow(Duration::from_secs(seconds));
        assert!(faults.set("node-00001", slow(1)));
        assert!(faults.set("node-00001", slow(2)));
        assert!(faults.set("node-00001", Fault::ZeroCpu));
        assert!(!faults.set("node-00002", Fault::ZeroCpu));
        assert_eq!(faults.of("node-00001"), [slow(2), Fault::ZeroCpu]);
        assert_eq!(faults.of("node-00000"), []);
        faults.clone().clear("node-00001");
        assert_eq!(faults.of("node-00001"), []);
    }
}
