//! Selects the objects of a request, in order.

use std::sync::Arc;

use kubevitals_apiserver::ListRequest;
use kubevitals_model::{FieldTerm, LabelSelector, Labels, PodKeyRef};

use crate::api::Snapshots;
use crate::render::Kind;
use crate::snapshot::{Entry, NodeEntry, PodSlot, Position, Snapshot};

/// Limit of pods that a request collects by labels, so that it holds little memory.
const MAX_SELECTED: usize = 4_096;

/// If the share of matching pods is larger, a scan with a filter is cheaper: collected pods must be
/// sorted.
const SCAN_IF_MORE_THAN_ONE_IN: usize = 8;

/// Number of pods whose memory is prefetched at once in an unfiltered scan.
const PREFETCH: usize = 16;

/// Namespace, labels and fields that objects must match.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    namespace: Option<String>,
    labels: LabelSelector,
    fields: Vec<FieldTerm>,
}

/// Iterates over the objects of a request in one snapshot.
pub(crate) struct Cursor {
    snapshot: Arc<Snapshot>,
    filter: Filter,
    scan: Scan,
    /// The last label set and whether it matched: neighbours often share it.
    memo: Option<(Labels, bool)>,
    /// The number of following pods that are prefetched.
    prefetched: usize,
}

/// The objects that remain, before the filter.
enum Scan {
    /// Pods between two positions.
    Range(Position, Position),
    Selected(std::vec::IntoIter<Arc<PodSlot>>),
    /// Pods of one node, from an index on.
    OnNode(Option<Arc<NodeEntry>>, usize),
    /// Nodes between two indexes, sorted by name.
    Nodes(usize, usize),
}

impl Filter {
    pub(crate) fn of(request: &ListRequest<'_>) -> Self {
        Self {
            namespace: request.namespace.map(str::to_owned),
            labels: request.labels.clone(),
            fields: request.fields.to_vec(),
        }
    }

    pub(crate) fn matches_pod(&self, slot: &PodSlot, node: &str) -> bool {
        self.matches_fields(slot, node) && self.matches_labels(&slot.labels)
    }

    pub(crate) fn matches_node(&self, name: &str, labels: &Labels) -> bool {
        let holds = |term: &FieldTerm| match term.field.as_str() {
            "metadata.name" => term.holds(name),
            _ => term.holds(""),
        };
        self.fields.iter().all(holds) && self.matches_labels(labels)
    }

    fn matches_labels(&self, labels: &Labels) -> bool {
        self.labels.is_empty()
            || self
                .labels
                .matches(|key| labels.get(key).map(|value| &**value))
    }

    fn matches_fields(&self, slot: &PodSlot, node: &str) -> bool {
        let namespace = slot.key.namespace();
        let holds = |term: &FieldTerm| match term.field.as_str() {
            "metadata.name" => term.holds(slot.key.name()),
            "metadata.namespace" => term.holds(namespace),
            "spec.nodeName" => term.holds(node),
            _ => term.holds(""),
        };
        self.namespace
            .as_deref()
            .is_none_or(|own| *own == **namespace)
            && self.fields.iter().all(holds)
    }

    /// Returns the value that a field must equal, if the selector has one.
    fn required_value(&self, field: &str) -> Option<&str> {
        let mut terms = self.fields.iter();
        let term = terms.find(|term| term.field == field && !term.negated)?;
        Some(&term.value)
    }
}

impl Cursor {
    /// Opens the current snapshot for a request.
    pub(crate) fn open(snapshots: &Snapshots, kind: Kind, request: &ListRequest<'_>) -> Self {
        let filter = Filter::of(request);
        let (snapshot, scan) = match kind {
            Kind::Node => nodes(snapshots, &filter),
            Kind::Pod => pods(snapshots, &filter),
        };
        Self {
            snapshot,
            filter,
            scan,
            memo: None,
            prefetched: 0,
        }
    }

    /// Returns the version of the snapshot.
    pub(crate) fn version(&self) -> u64 {
        self.snapshot.version
    }

    /// Returns a second cursor over the remaining objects.
    pub(crate) fn lookahead(&self) -> Self {
        Self {
            snapshot: Arc::clone(&self.snapshot),
            filter: self.filter.clone(),
            scan: self.scan.clone(),
            memo: None,
            prefetched: 0,
        }
    }

    /// Returns the number of bytes of all items in a protobuf list.
    pub(crate) fn total_bytes(&self) -> usize {
        if let Some(total) = self.indexed_total() {
            return total;
        }
        let mut ahead = self.lookahead();
        let mut total = 0;
        while let Some(object) = ahead.next() {
            total += object.item_len();
        }
        total
    }

    /// Returns the same from the size index: for a scan of all pods, or those of a namespace, from
    /// the beginning.
    fn indexed_total(&self) -> Option<usize> {
        let Scan::Range(from, to) = self.scan else {
            return None;
        };
        if !self.filter.labels.is_empty() || !self.filter.fields.is_empty() {
            return None;
        }
        let (pods, sizes) = (&self.snapshot.pods, &self.snapshot.sizes);
        let (range, total) = match self.filter.namespace.as_deref() {
            Some(namespace) => (pods.namespace_range(namespace), sizes.namespace(namespace)),
            None => (pods.full_range(), sizes.total()),
        };
        (range == (from, to)).then_some(total)
    }

    pub(crate) fn next(&mut self) -> Option<Entry<'_>> {
        let Self {
            snapshot,
            filter,
            scan,
            memo,
            prefetched,
        } = self;
        match scan {
            Scan::Range(at, end) => {
                while *at < *end {
                    if *prefetched == 0 && filter.labels.is_empty() && filter.fields.is_empty() {
                        let next = snapshot.pods.chunk(*at, PREFETCH);
                        snapshot.prefetch(next);
                        *prefetched = next.len();
                    }
                    *prefetched = prefetched.saturating_sub(1);
                    let slot = snapshot.pods.at(*at)?;
                    *at = snapshot.pods.next_position(*at);
                    if let Some(object) = get_matching(snapshot, filter, memo, slot) {
                        return Some(object);
                    }
                }
                None
            }
            Scan::Selected(slots) => {
                slots.find_map(|slot| get_matching(snapshot, filter, memo, &slot))
            }
            Scan::OnNode(entry, at) => {
                let entry = entry.as_ref()?;
                while let Some(span) = entry.pods.get(*at) {
                    *at += 1;
                    let served = snapshot
                        .pods
                        .get(kubevitals_model::AsPodKey::as_pod_key(&span.slot.key));
                    if served.is_some_and(|own| Arc::ptr_eq(own, &span.slot))
                        && filter.matches_pod(&span.slot, entry.name.as_str())
                    {
                        return entry.pod_at(*at - 1);
                    }
                }
                None
            }
            Scan::Nodes(at, end) => {
                while *at < *end {
                    let entry = snapshot.nodes.get(*snapshot.node_order.get(*at)?)?;
                    *at += 1;
                    if filter.matches_node(entry.name.as_str(), &entry.labels)
                        && let Some(object) = entry.own()
                    {
                        return Some(object);
                    }
                }
                None
            }
        }
    }
}

impl Filter {
    fn matches_all(&self) -> bool {
        self.namespace.is_none() && self.labels.is_empty() && self.fields.is_empty()
    }
}

impl Clone for Scan {
    fn clone(&self) -> Self {
        match self {
            Self::Range(from, to) => Self::Range(*from, *to),
            Self::Selected(slots) => Self::Selected(slots.clone()),
            Self::OnNode(entry, at) => Self::OnNode(entry.clone(), *at),
            Self::Nodes(from, to) => Self::Nodes(*from, *to),
        }
    }
}

/// Returns the object of a pod, if it is served and matches.
fn get_matching<'a>(
    snapshot: &'a Snapshot,
    filter: &Filter,
    memo: &mut Option<(Labels, bool)>,
    slot: &Arc<PodSlot>,
) -> Option<Entry<'a>> {
    let entry = snapshot.nodes.get(slot.node)?;
    if filter.matches_all() {
        return entry.pod(slot);
    }
    if !filter.matches_fields(slot, entry.name.as_str()) {
        return None;
    }
    if !filter.labels.is_empty() {
        let matches = match memo {
            Some((labels, matches)) if labels.is_same_allocation(&slot.labels) => *matches,
            _ => {
                let matches = filter.matches_labels(&slot.labels);
                *memo = Some((slot.labels.clone(), matches));
                matches
            }
        };
        if !matches {
            return None;
        }
    }
    entry.pod(slot)
}

fn nodes(snapshots: &Snapshots, filter: &Filter) -> (Arc<Snapshot>, Scan) {
    let snapshot = snapshots.current.load_full();
    let all = snapshot.node_order.len();
    let scan = match filter.required_value("metadata.name") {
        Some(name) => match snapshot.find_node(name) {
            Ok(at) => Scan::Nodes(at, at + 1),
            Err(_) => Scan::Nodes(0, 0),
        },
        None => Scan::Nodes(0, all),
    };
    (snapshot, scan)
}

/// Chooses the shortest scan that contains the requested pods.
fn pods(snapshots: &Snapshots, filter: &Filter) -> (Arc<Snapshot>, Scan) {
    let namespace = filter
        .namespace
        .as_deref()
        .or_else(|| filter.required_value("metadata.namespace"));
    let name = filter.required_value("metadata.name");
    if let (Some(namespace), Some(name)) = (namespace, name) {
        let snapshot = snapshots.current.load_full();
        let slot = snapshot.pods.get(PodKeyRef { namespace, name }).cloned();
        let slots = slot.into_iter().collect::<Vec<_>>();
        return (snapshot, Scan::Selected(slots.into_iter()));
    }
    if let Some(node) = filter.required_value("spec.nodeName") {
        let snapshot = snapshots.current.load_full();
        let entry = snapshot.node(node).cloned();
        return (snapshot, Scan::OnNode(entry, 0));
    }
    let range = |snapshot: &Snapshot| match namespace {
        Some(namespace) => snapshot.pods.namespace_range(namespace),
        None => snapshot.pods.full_range(),
    };
    if !filter.labels.is_empty() {
        let label_index = snapshots.label_index.read();
        // Loaded while the lock is held, so that both have the same version.
        let snapshot = snapshots.current.load_full();
        let (from, to) = range(&snapshot);
        let max = snapshot.pods.count_between(from, to) / SCAN_IF_MORE_THAN_ONE_IN;
        let max = max.clamp(64, MAX_SELECTED);
        if let Some(slots) = label_index.select(namespace, &filter.labels, max) {
            return (snapshot, Scan::Selected(slots.into_iter()));
        }
    }
    let snapshot = snapshots.current.load_full();
    let (from, to) = range(&snapshot);
    (snapshot, Scan::Range(from, to))
}
