//! The immutable state of the API that a request reads. A reader takes the current one and keeps it
//! for as long as it needs; a publication derives the next one from it.
//!
//! A [`Snapshot`] shares everything with its predecessor except for the path to what changed:
//! publishing a node copies some hundred pointers, adding or removing a pod some hundred more,
//! whatever the size of the cluster.

use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use kubevitals_model::{Labels, NodeName, PodKey, Timestamp};

use crate::render::proto::{self, Meta};

pub(crate) use label_index::LabelIndex;
pub(crate) use node_table::NodeTable;
pub(crate) use pod_index::{PodIndex, Position};
pub(crate) use size_index::SizeIndex;

mod label_index;
mod node_table;
mod pod_index;
mod size_index;

/// Everything that is served at one resource version.
#[derive(Default)]
pub(crate) struct Snapshot {
    /// The version of the last change.
    pub(crate) version: u64,
    pub(crate) nodes: NodeTable,
    /// The IDs of the nodes, sorted by name.
    pub(crate) node_order: Arc<Vec<u32>>,
    pub(crate) pods: PodIndex,
    pub(crate) sizes: SizeIndex,
}

/// The last publication of a node: the bodies of its own message and of its pods' messages in one
/// protobuf buffer. Metadata is kept once, in the node and in the slots: names and labels would be
/// the larger half of the messages.
pub(crate) struct NodeEntry {
    pub(crate) name: NodeName,
    pub(crate) labels: Labels,
    pub(crate) published: Timestamp,
    /// The version of the last change of the node or one of its pods.
    pub(crate) modified: u64,
    pub(crate) buffer: Box<[u8]>,
    /// The node's own message, if its usage is known.
    pub(crate) own: Option<NodeSpan>,
    /// Sorted by namespace and name; the bytes of each follow those of its predecessor.
    pub(crate) pods: Box<[PodSpan]>,
    pub(crate) size: LiveBytes,
}

/// The location of a node's body: from the start of the buffer.
#[derive(Clone, Copy)]
pub(crate) struct NodeSpan {
    /// The time at which this content was first published.
    pub(crate) created: Timestamp,
    pub(crate) end: u32,
    /// Milliseconds between the sample and the publication.
    pub(crate) age: u32,
    /// The version of its last change.
    pub(crate) modified: u64,
    /// The version at which it appeared with these labels.
    pub(crate) added: u64,
}

/// The location of a pod's body: from the end of its predecessor.
#[derive(Clone)]
pub(crate) struct PodSpan {
    pub(crate) slot: Arc<PodSlot>,
    /// The time at which this content was first published.
    pub(crate) created: Timestamp,
    pub(crate) end: u32,
    /// Milliseconds between the sample and the publication.
    pub(crate) age: u32,
    /// The version of its last change.
    pub(crate) modified: u64,
}

/// A pod for as long as its node and labels stay the same. Its address is its identity.
#[derive(Debug)]
pub(crate) struct PodSlot {
    pub(crate) key: PodKey,
    pub(crate) labels: Labels,
    /// The ID of its node.
    pub(crate) node: u32,
    /// Its last index among the pods of its node. Only a hint: a reader may hold an older entry.
    pub(crate) hint: AtomicU32,
    /// The version at which it appeared.
    pub(crate) added: AtomicU64,
}

/// A number of bytes that counts as live until it is dropped.
pub(crate) struct LiveBytes {
    pub(crate) bytes: usize,
    live: Arc<AtomicUsize>,
}

/// One encoded object and its metadata.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) meta: Meta<'a>,
    /// The message without its metadata.
    pub(crate) body: &'a [u8],
    /// The version of its last change.
    pub(crate) modified: u64,
    /// The time of the sample in Unix milliseconds.
    pub(crate) sampled: i64,
}

impl Snapshot {
    /// Returns the object of a pod, if this snapshot serves it.
    pub(crate) fn pod(&self, slot: &Arc<PodSlot>) -> Option<Entry<'_>> {
        self.nodes.get(slot.node)?.pod(slot)
    }

    /// Reads the memory that [`Snapshot::pod`] and the encoder will need, for several pods at once.
    ///
    /// A pod is spread over five allocations, each of which points to the next: a list that handles
    /// one pod after another waits for memory most of the time. Here the loads of several pods
    /// overlap.
    pub(crate) fn prefetch(&self, slots: &[Arc<PodSlot>]) {
        let seen = slots.iter().fold(0, |seen: u8, slot| {
            let first = slot.key.name().as_bytes().first().copied();
            let body = self
                .nodes
                .get(slot.node)
                .and_then(|entry| entry.last_byte(slot));
            seen ^ first.unwrap_or_default() ^ body.unwrap_or_default()
        });
        black_box(seen);
    }

    /// Returns the index of a node among the sorted names, or where it would be inserted.
    pub(crate) fn find_node(&self, name: &str) -> Result<usize, usize> {
        self.node_order.binary_search_by(|number| {
            let own = self.nodes.get(*number);
            own.map_or("", |entry| entry.name.as_str()).cmp(name)
        })
    }

    pub(crate) fn node(&self, name: &str) -> Option<&Arc<NodeEntry>> {
        let at = self.find_node(name).ok()?;
        self.nodes.get(*self.node_order.get(at)?)
    }
}

impl NodeEntry {
    /// Returns the object of the node itself.
    pub(crate) fn own(&self) -> Option<Entry<'_>> {
        let own = self.own?;
        let meta = Meta {
            name: self.name.as_str(),
            namespace: "",
            created: own.created,
            labels: &self.labels,
        };
        self.entry(meta, 0..own.end, own.age, own.modified)
    }

    /// Returns the object of a pod that is or was on this node.
    pub(crate) fn pod(&self, slot: &Arc<PodSlot>) -> Option<Entry<'_>> {
        self.pod_at(self.position(slot)?)
    }

    /// Returns the index of a pod that is or was on this node.
    fn position(&self, slot: &Arc<PodSlot>) -> Option<usize> {
        let hint = usize::try_from(slot.hint.load(Ordering::Relaxed)).ok()?;
        let is_it = |span: &PodSpan| Arc::ptr_eq(&span.slot, slot);
        match self.pods.get(hint) {
            Some(span) if is_it(span) => Some(hint),
            _ => self.pods.iter().position(is_it),
        }
    }

    /// Returns the last byte of a pod's body, trusting the hint.
    fn last_byte(&self, slot: &PodSlot) -> Option<u8> {
        let hint = usize::try_from(slot.hint.load(Ordering::Relaxed)).ok()?;
        let last = self.pods.get(hint)?.end.checked_sub(1)?;
        self.buffer.get(usize::try_from(last).ok()?).copied()
    }

    /// Whether both entries have the same pod at this index, with metadata of the same length.
    fn is_same_pod(&self, other: &Self, at: usize) -> bool {
        let (Some(own), Some(others)) = (self.pods.get(at), other.pods.get(at)) else {
            return false;
        };
        Arc::ptr_eq(&own.slot, &others.slot) && proto::have_same_len(own.created, others.created)
    }

    /// Returns the encoded size of the pod at this index as a list item, here and in another entry
    /// that has the same pod; `None` if they are equal.
    fn changed_sizes(&self, other: &Self, at: usize) -> Option<[usize; 2]> {
        let (own, others) = (self.pod_at(at)?, other.pod_at(at)?);
        let bodies = [own.body.len(), others.body.len()];
        (own.body.len() != others.body.len()).then(|| proto::item_lens(own.meta, bodies))
    }

    /// Returns the offset at which the body of the pod at this index begins.
    #[inline]
    fn start(&self, at: usize) -> Option<u32> {
        match at.checked_sub(1) {
            Some(before) => self.pods.get(before).map(|span| span.end),
            None => Some(self.own.map_or(0, |own| own.end)),
        }
    }

    /// Returns the object of the pod at this index.
    pub(crate) fn pod_at(&self, at: usize) -> Option<Entry<'_>> {
        let span = self.pods.get(at)?;
        let start = self.start(at)?;
        let meta = Meta {
            name: span.slot.key.name(),
            namespace: span.slot.key.namespace(),
            created: span.created,
            labels: &span.slot.labels,
        };
        self.entry(meta, start..span.end, span.age, span.modified)
    }

    fn entry<'a>(
        &'a self,
        meta: Meta<'a>,
        range: Range<u32>,
        age: u32,
        modified: u64,
    ) -> Option<Entry<'a>> {
        let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
        Some(Entry {
            meta,
            body: self.buffer.get(range)?,
            modified,
            sampled: self.published.unix_millis().saturating_sub(i64::from(age)),
        })
    }
}

impl Entry<'_> {
    /// Assembles the message in a buffer.
    pub(crate) fn message<'b>(&self, buffer: &'b mut Vec<u8>) -> &'b [u8] {
        buffer.clear();
        proto::put_message(buffer, self.meta, self.body);
        buffer
    }

    /// Returns the number of bytes it takes as an item of a protobuf list.
    pub(crate) fn item_len(&self) -> usize {
        proto::item_len(self.meta, self.body)
    }
}

impl LiveBytes {
    pub(crate) fn new(bytes: usize, live: &Arc<AtomicUsize>) -> Self {
        live.fetch_add(bytes, Ordering::Relaxed);
        Self {
            bytes,
            live: Arc::clone(live),
        }
    }
}

impl Drop for LiveBytes {
    fn drop(&mut self) {
        self.live.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
