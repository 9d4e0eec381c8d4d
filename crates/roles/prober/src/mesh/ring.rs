//! Which nodes a node connects to.

use std::net::IpAddr;
use std::sync::Arc;

use kubevitals_model::fnv1a;
use serde::{Deserialize, Serialize};

/// A prober of the mesh.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshPeer {
    pub node: Arc<str>,
    pub zone: Arc<str>,
    pub address: IpAddr,
}

/// All probers in the order of a hash of their nodes. Each probes those that follow it, so each is
/// probed by as many, and a node that comes or goes changes the peers of a few.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MeshRing(Vec<(u64, MeshPeer)>);

impl MeshRing {
    /// Of several probers of one node the first counts.
    pub fn new(peers: impl IntoIterator<Item = MeshPeer>) -> Self {
        let mut ring: Vec<_> = peers
            .into_iter()
            .map(|peer| (position(&peer.node), peer))
            .collect();
        ring.sort_by(|(a, one), (b, other)| (a, &one.node).cmp(&(b, &other.node)));
        ring.dedup_by(|(_, later), (_, first)| later.node == first.node);
        Self(ring)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, node: &str) -> Option<&MeshPeer> {
        let key = (position(node), node);
        let found = self
            .0
            .binary_search_by(|(at, peer)| (*at, &*peer.node).cmp(&key));
        found
            .ok()
            .and_then(|at| self.0.get(at))
            .map(|(_, peer)| peer)
    }

    /// The `count` probers that follow a node, which need not be on the ring itself.
    pub fn after(&self, node: &str, count: usize) -> Vec<&MeshPeer> {
        let key = (position(node), node);
        let start = self
            .0
            .partition_point(|(at, peer)| (*at, &*peer.node) <= key);
        let (before, after) = self.0.split_at_checked(start).unwrap_or_default();
        let others = after.iter().chain(before).map(|(_, peer)| peer);
        let others = others.filter(|peer| *peer.node != *node);
        others.take(count).collect()
    }
}

/// The position of a node. Names of nodes are similar: the mixing spreads them.
fn position(node: &str) -> u64 {
    let mut mixed = fnv1a(node.as_bytes());
    for (shift, factor) in [(30, 0xbf58_476d_1ce4_e5b9_u64), (27, 0x94d0_49bb_1331_11eb)] {
        mixed = (mixed ^ (mixed >> shift)).wrapping_mul(factor);
    }
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn ring(names: &[String]) -> MeshRing {
        MeshRing::new(names.iter().map(|name| MeshPeer {
            node: name.as_str().into(),
            zone: "z".into(),
            address: [127, 0, 0, 1].into(),
        }))
    }

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|index| format!("node-{index:05}")).collect()
    }

    /// Rendezvous hashing leaves one node in twenty without anybody who probes it.
    #[test]
    fn every_node_of_5000_is_probed_by_exactly_three_others() {
        let names = names(5_000);
        let ring = ring(&names);
        let mut probed = BTreeMap::new();
        for name in &names {
            for peer in ring.after(name, 3) {
                assert_ne!(*peer.node, **name);
                *probed.entry(Arc::clone(&peer.node)).or_insert(0) += 1;
            }
        }
        assert_eq!(probed.len(), 5_000);
        assert!(probed.values().all(|count| *count == 3));
    }

    #[test]
    fn a_node_that_goes_changes_the_peers_of_three_others() {
        let names = names(1_000);
        let (before, after) = (ring(&names), ring(&names[1..]));
        let changed = names[1..]
            .iter()
            .filter(|name| before.after(name, 3) != after.after(name, 3));
        assert_eq!(changed.count(), 3);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn peers_are_others_without_duplicates(names in prop::collection::vec("[a-c]{1,3}", 0..12), name in "[a-c]{1,3}", count in 0..6_usize) {
            let ring = ring(&names);
            let others = names.iter().filter(|other| **other != name).collect::<std::collections::BTreeSet<_>>();
            let peers = ring.after(&name, count);
            let distinct = peers.iter().map(|peer| &peer.node).collect::<std::collections::BTreeSet<_>>();
            prop_assert_eq!(peers.len(), count.min(others.len()));
            prop_assert_eq!(distinct.len(), peers.len());
            prop_assert_eq!(ring.get(&name).is_some(), names.contains(&name));
        }
    }
}
