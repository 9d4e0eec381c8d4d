//! What is served, as one value that never changes: a reader takes the current one and reads in
//! peace, however long it takes; a publication makes the next one out of it.
//!
//! Everything in a [`Catalog`] is shared with the one before, except for the path to what changed:
//! publishing a node copies some hundred pointers, and a pod that comes or goes some hundred more,
//! whatever the size of the cluster.

use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use kubevitals_model::{Labels, NodeName, PodKey, Timestamp};

use crate::render::proto::{self, Meta};

pub(crate) use groups::Groups;
pub(crate) use lengths::Lengths;
pub(crate) use roster::{Position, Roster};
pub(crate) use table::NodeTable;

mod groups;
mod lengths;
mod roster;
mod table;

/// All that is served at one version.
#[derive(Default)]
pub(crate) struct Catalog {
    /// The number of the last change.
    pub(crate) version: u64,
    /// By number.
    pub(crate) nodes: NodeTable,
    /// The numbers of the nodes in the order of their names.
    pub(crate) node_order: Arc<Vec<u32>>,
    /// In the order of namespaces and names.
    pub(crate) pods: Roster,
    /// How many bytes pods take in a protobuf list.
    pub(crate) lengths: Lengths,
}

/// What was published last of a node: the bodies of its own message and of those of its pods in one
/// buffer, as protobuf. Their metadata is that of the node and of the slots: labels and names would
/// be the larger half of the messages.
pub(crate) struct NodeEntry {
    pub(crate) name: NodeName,
    pub(crate) labels: Labels,
    pub(crate) published: Timestamp,
    /// The version with which anything of it changed last.
    pub(crate) latest: u64,
    pub(crate) buffer: Box<[u8]>,
    /// The node's own message, where its usage is known.
    pub(crate) own: Option<OwnPiece>,
    /// In the order of namespaces and names; the bytes of each follow those of the one before.
    pub(crate) pods: Box<[PodPiece]>,
    pub(crate) counted: Counted,
}

/// Where the body of a node is: from the start of the buffer on.
#[derive(Clone, Copy)]
pub(crate) struct OwnPiece {
    /// When what it says was published first.
    pub(crate) created: Timestamp,
    pub(crate) end: u32,
    pub(crate) age: u32,
    /// The version with which it changed last.
    pub(crate) since: u64,
    /// The version with which it came about, with these labels.
    pub(crate) born: u64,
}

/// Where the body of a pod is: from the end of the one before.
#[derive(Clone)]
pub(crate) struct PodPiece {
    pub(crate) slot: Arc<PodSlot>,
    /// When what it says was published first.
    pub(crate) created: Timestamp,
    pub(crate) end: u32,
    /// Milliseconds between the sample and the publication.
    pub(crate) age: u32,
    /// The version with which it changed last.
    pub(crate) since: u64,
}

/// A pod as long as its node and its labels stay the same. Its address is its identity.
#[derive(Debug)]
pub(crate) struct PodSlot {
    pub(crate) key: PodKey,
    pub(crate) labels: Labels,
    /// The number of its node.
    pub(crate) node: u32,
    /// Where it was last among the pods of its node. Only a hint: a reader may hold an older entry.
    pub(crate) hint: AtomicU32,
    /// The version with which it came about.
    pub(crate) born: AtomicU64,
}

/// Bytes that count as alive until they are dropped.
pub(crate) struct Counted {
    pub(crate) bytes: usize,
    alive: Arc<AtomicUsize>,
}

/// A message and what is known about it.
#[derive(Clone, Copy)]
pub(crate) struct Found<'a> {
    pub(crate) meta: Meta<'a>,
    /// All of the message that is not metadata.
    pub(crate) body: &'a [u8],
    pub(crate) since: u64,
    /// When it was measured.
    pub(crate) measured: i64,
}

impl Catalog {
    /// The message of a pod, if it is among what this catalog serves.
    pub(crate) fn pod(&self, slot: &Arc<PodSlot>) -> Option<Found<'_>> {
        self.nodes.get(slot.node)?.pod(slot)
    }

    /// Looks at all that [`Catalog::pod`] and whoever writes its message will, of several pods at
    /// once.
    ///
    /// A pod is in five places of memory, each of which is known by the one before: a list of all
    /// that takes one pod after the other waits for memory most of its time. Here the processor can
    /// wait for several pods at once.
    pub(crate) fn fetch(&self, slots: &[Arc<PodSlot>]) {
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

    /// Where a node of this name is among the names in order, or where it would be.
    pub(crate) fn find_node(&self, name: &str) -> Result<usize, usize> {
        self.node_order.binary_search_by(|number| {
            let own = self.nodes.get(*number);
            own.map_or("", |entry| entry.name.as_str()).cmp(name)
        })
    }

    /// A node by its name.
    pub(crate) fn node(&self, name: &str) -> Option<&Arc<NodeEntry>> {
        let at = self.find_node(name).ok()?;
        self.nodes.get(*self.node_order.get(at)?)
    }
}

impl NodeEntry {
    /// The node's own message.
    pub(crate) fn own(&self) -> Option<Found<'_>> {
        let own = self.own?;
        let meta = Meta {
            name: self.name.as_str(),
            namespace: "",
            created: own.created,
            labels: &self.labels,
        };
        self.found(meta, 0..own.end, own.age, own.since)
    }

    /// The message of a pod that is known to be here, or was.
    pub(crate) fn pod(&self, slot: &Arc<PodSlot>) -> Option<Found<'_>> {
        self.pod_at(self.position(slot)?)
    }

    /// Where a pod is that is known to be here, or was.
    fn position(&self, slot: &Arc<PodSlot>) -> Option<usize> {
        let hint = usize::try_from(slot.hint.load(Ordering::Relaxed)).ok()?;
        let is_it = |piece: &PodPiece| Arc::ptr_eq(&piece.slot, slot);
        match self.pods.get(hint) {
            Some(piece) if is_it(piece) => Some(hint),
            _ => self.pods.iter().position(is_it),
        }
    }

    /// The last byte of the body of a pod, where it is likely to be.
    fn last_byte(&self, slot: &PodSlot) -> Option<u8> {
        let hint = usize::try_from(slot.hint.load(Ordering::Relaxed)).ok()?;
        let last = self.pods.get(hint)?.end.checked_sub(1)?;
        self.buffer.get(usize::try_from(last).ok()?).copied()
    }

    /// Whether the pod at this place is the same as in another entry, and its metadata as long.
    fn has_same(&self, other: &Self, at: usize) -> bool {
        let (Some(own), Some(others)) = (self.pods.get(at), other.pods.get(at)) else {
            return false;
        };
        Arc::ptr_eq(&own.slot, &others.slot) && proto::are_as_long(own.created, others.created)
    }

    /// How long the pod at this place is in a list, here and in another entry that has the same;
    /// `None` if it is as long.
    fn pair_of_lengths(&self, other: &Self, at: usize) -> Option<[usize; 2]> {
        let (own, others) = (self.pod_at(at)?, other.pod_at(at)?);
        let bodies = [own.body.len(), others.body.len()];
        (own.body.len() != others.body.len()).then(|| proto::item_lens(own.meta, bodies))
    }

    /// Where the body of the pod at this place begins.
    #[inline]
    fn start(&self, at: usize) -> Option<u32> {
        match at.checked_sub(1) {
            Some(before) => self.pods.get(before).map(|piece| piece.end),
            None => Some(self.own.map_or(0, |own| own.end)),
        }
    }

    /// The message of the pod at this place.
    pub(crate) fn pod_at(&self, at: usize) -> Option<Found<'_>> {
        let piece = self.pods.get(at)?;
        let start = self.start(at)?;
        let meta = Meta {
            name: piece.slot.key.name(),
            namespace: piece.slot.key.namespace(),
            created: piece.created,
            labels: &piece.slot.labels,
        };
        self.found(meta, start..piece.end, piece.age, piece.since)
    }

    fn found<'a>(
        &'a self,
        meta: Meta<'a>,
        within: Range<u32>,
        age: u32,
        since: u64,
    ) -> Option<Found<'a>> {
        let range = usize::try_from(within.start).ok()?..usize::try_from(within.end).ok()?;
        Some(Found {
            meta,
            body: self.buffer.get(range)?,
            since,
            measured: self.published.unix_millis().saturating_sub(i64::from(age)),
        })
    }
}

impl Found<'_> {
    /// The message, put together in a buffer.
    pub(crate) fn message<'b>(&self, buffer: &'b mut Vec<u8>) -> &'b [u8] {
        buffer.clear();
        proto::put_message(buffer, self.meta, self.body);
        buffer
    }

    /// How many bytes it takes as the item of a protobuf list.
    pub(crate) fn item_len(&self) -> usize {
        proto::item_len(self.meta, self.body)
    }
}

impl Counted {
    pub(crate) fn new(bytes: usize, alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(bytes, Ordering::Relaxed);
        Self {
            bytes,
            alive: Arc::clone(alive),
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.alive.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
