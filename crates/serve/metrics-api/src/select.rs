//! Which objects a request is about, and in which order they come.

use std::sync::{Arc, PoisonError};

use kubevitals_apiserver::{ListRequest, StatusError};
use kubevitals_model::{FieldTerm, LabelSelector, Labels, PodKeyRef};

use crate::api::State;
use crate::catalog::{Catalog, Found, NodeEntry, PodSlot, Position};
use crate::render::Kind;

/// How many pods are gathered by their labels at most, so that what a request holds stays small.
const MAX_GATHERED: usize = 4_096;

/// If more than one in so many is wanted it is cheaper to walk over all and ask each: what is
/// gathered must be sorted.
const WALK_FOR_ONE_IN: usize = 8;

/// So many pods are fetched from memory at once where all are wanted.
const FETCHED_AT_ONCE: usize = 16;

/// What an object must be like.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    namespace: Option<String>,
    labels: LabelSelector,
    fields: Vec<FieldTerm>,
}

/// The objects of a request in a catalog, one after the other.
pub(crate) struct Cursor {
    catalog: Arc<Catalog>,
    filter: Filter,
    place: Place,
    /// The labels that were asked about last, and the answer: neighbours often have the same.
    memo: Option<(Labels, bool)>,
    /// How many of the next pods were fetched.
    fetched: usize,
}

enum Place {
    /// Pods between two places that pass the filter.
    Range(Position, Position),
    /// These pods, if they pass what is left of the filter.
    Gathered(std::vec::IntoIter<Arc<PodSlot>>),
    /// Pods of one node.
    OnNode(Option<Arc<NodeEntry>>, usize),
    /// Nodes from here on, in the order of names.
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

    /// Whether a pod is wanted.
    pub(crate) fn takes_pod(&self, slot: &PodSlot, node: &str) -> bool {
        self.takes_place(slot, node) && self.takes_labels(&slot.labels)
    }

    /// Whether a node is wanted.
    pub(crate) fn takes_node(&self, name: &str, labels: &Labels) -> bool {
        let holds = |term: &FieldTerm| match term.field.as_str() {
            "metadata.name" => term.holds(name),
            _ => term.holds(""),
        };
        self.fields.iter().all(holds) && self.takes_labels(labels)
    }

    fn takes_labels(&self, labels: &Labels) -> bool {
        self.labels.is_empty()
            || self
                .labels
                .matches(|key| labels.get(key).map(|value| &**value))
    }

    fn takes_place(&self, slot: &PodSlot, node: &str) -> bool {
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

    /// The value that a field must have, if there is just one.
    fn value_of(&self, field: &str) -> Option<&str> {
        let mut terms = self.fields.iter();
        let term = terms.find(|term| term.field == field && !term.negated)?;
        Some(&term.value)
    }
}

impl Cursor {
    /// The objects that a request asks for, as they are now.
    pub(crate) fn open(
        state: &State,
        kind: Kind,
        request: &ListRequest<'_>,
    ) -> Result<Self, StatusError> {
        state.admit()?;
        let filter = Filter::of(request);
        let (catalog, place) = match kind {
            Kind::Node => nodes(state, &filter),
            Kind::Pod => pods(state, &filter),
        };
        Ok(Self {
            catalog,
            filter,
            place,
            memo: None,
            fetched: 0,
        })
    }

    /// The version of what it walks over.
    pub(crate) fn version(&self) -> u64 {
        self.catalog.version
    }

    /// One that walks the same way, from the same place on.
    pub(crate) fn ahead(&self) -> Self {
        Self {
            catalog: Arc::clone(&self.catalog),
            filter: self.filter.clone(),
            place: self.place.clone(),
            memo: None,
            fetched: 0,
        }
    }

    /// How many bytes all items take together.
    pub(crate) fn total(&self) -> usize {
        if let Some(total) = self.known_total() {
            return total;
        }
        let mut ahead = self.ahead();
        let mut total = 0;
        while let Some(found) = ahead.next() {
            total += found.item_len();
        }
        total
    }

    /// The same where it is kept: of a walk over all pods, or those of a namespace, that has not
    /// begun.
    fn known_total(&self) -> Option<usize> {
        let Place::Range(from, to) = self.place else {
            return None;
        };
        if !self.filter.labels.is_empty() || !self.filter.fields.is_empty() {
            return None;
        }
        let (pods, lengths) = (&self.catalog.pods, &self.catalog.lengths);
        let (range, total) = match self.filter.namespace.as_deref() {
            Some(namespace) => (pods.namespace(namespace), lengths.namespace(namespace)),
            None => (pods.all(), lengths.all()),
        };
        (range == (from, to)).then_some(total)
    }

    /// The next object.
    pub(crate) fn next(&mut self) -> Option<Found<'_>> {
        let Self {
            catalog,
            filter,
            place,
            memo,
            fetched,
        } = self;
        match place {
            Place::Range(at, end) => {
                while *at < *end {
                    if *fetched == 0 && filter.labels.is_empty() && filter.fields.is_empty() {
                        let next = catalog.pods.some(*at, FETCHED_AT_ONCE);
                        catalog.fetch(next);
                        *fetched = next.len();
                    }
                    *fetched = fetched.saturating_sub(1);
                    let slot = catalog.pods.at(*at)?;
                    *at = catalog.pods.after(*at);
                    if let Some(found) = take(catalog, filter, memo, slot) {
                        return Some(found);
                    }
                }
                None
            }
            Place::Gathered(slots) => slots.find_map(|slot| take(catalog, filter, memo, &slot)),
            Place::OnNode(entry, at) => {
                let entry = entry.as_ref()?;
                while let Some(piece) = entry.pods.get(*at) {
                    *at += 1;
                    let served = catalog
                        .pods
                        .get(kubevitals_model::AsPodKey::as_pod_key(&piece.slot.key));
                    if served.is_some_and(|own| Arc::ptr_eq(own, &piece.slot))
                        && filter.takes_pod(&piece.slot, entry.name.as_str())
                    {
                        return entry.pod_at(*at - 1);
                    }
                }
                None
            }
            Place::Nodes(at, end) => {
                while *at < *end {
                    let entry = catalog.nodes.get(*catalog.node_order.get(*at)?)?;
                    *at += 1;
                    if filter.takes_node(entry.name.as_str(), &entry.labels)
                        && let Some(found) = entry.own()
                    {
                        return Some(found);
                    }
                }
                None
            }
        }
    }
}

impl Filter {
    fn takes_all(&self) -> bool {
        self.namespace.is_none() && self.labels.is_empty() && self.fields.is_empty()
    }
}

impl Clone for Place {
    fn clone(&self) -> Self {
        match self {
            Self::Range(from, to) => Self::Range(*from, *to),
            Self::Gathered(slots) => Self::Gathered(slots.clone()),
            Self::OnNode(entry, at) => Self::OnNode(entry.clone(), *at),
            Self::Nodes(from, to) => Self::Nodes(*from, *to),
        }
    }
}

/// The message of a pod, if the pod is wanted and served.
fn take<'a>(
    catalog: &'a Catalog,
    filter: &Filter,
    memo: &mut Option<(Labels, bool)>,
    slot: &Arc<PodSlot>,
) -> Option<Found<'a>> {
    let entry = catalog.nodes.get(slot.node)?;
    if filter.takes_all() {
        return entry.pod(slot);
    }
    if !filter.takes_place(slot, entry.name.as_str()) {
        return None;
    }
    if !filter.labels.is_empty() {
        let wanted = match memo {
            Some((labels, wanted)) if labels.is_same_allocation(&slot.labels) => *wanted,
            _ => {
                let wanted = filter.takes_labels(&slot.labels);
                *memo = Some((slot.labels.clone(), wanted));
                wanted
            }
        };
        if !wanted {
            return None;
        }
    }
    entry.pod(slot)
}

fn nodes(state: &State, filter: &Filter) -> (Arc<Catalog>, Place) {
    let catalog = state.catalog.load_full();
    let all = catalog.node_order.len();
    let place = match filter.value_of("metadata.name") {
        Some(name) => match catalog.find_node(name) {
            Ok(at) => Place::Nodes(at, at + 1),
            Err(_) => Place::Nodes(0, 0),
        },
        None => Place::Nodes(0, all),
    };
    (catalog, place)
}

/// The shortest way to the pods that can be meant.
fn pods(state: &State, filter: &Filter) -> (Arc<Catalog>, Place) {
    let namespace = filter
        .namespace
        .as_deref()
        .or_else(|| filter.value_of("metadata.namespace"));
    let name = filter.value_of("metadata.name");
    if let (Some(namespace), Some(name)) = (namespace, name) {
        let catalog = state.catalog.load_full();
        let slot = catalog.pods.get(PodKeyRef { namespace, name }).cloned();
        let slots = slot.into_iter().collect::<Vec<_>>();
        return (catalog, Place::Gathered(slots.into_iter()));
    }
    if let Some(node) = filter.value_of("spec.nodeName") {
        let catalog = state.catalog.load_full();
        let entry = catalog.node(node).cloned();
        return (catalog, Place::OnNode(entry, 0));
    }
    let range = |catalog: &Catalog| match namespace {
        Some(namespace) => catalog.pods.namespace(namespace),
        None => catalog.pods.all(),
    };
    if !filter.labels.is_empty() {
        let groups = state.groups.read().unwrap_or_else(PoisonError::into_inner);
        // Taken while the lock is held: both are of one version.
        let catalog = state.catalog.load_full();
        let (from, to) = range(&catalog);
        let most = catalog.pods.between(from, to) / WALK_FOR_ONE_IN;
        let most = most.clamp(64, MAX_GATHERED);
        if let Some(slots) = groups.select(namespace, &filter.labels, most) {
            return (catalog, Place::Gathered(slots.into_iter()));
        }
    }
    let catalog = state.catalog.load_full();
    let (from, to) = range(&catalog);
    (catalog, Place::Range(from, to))
}
