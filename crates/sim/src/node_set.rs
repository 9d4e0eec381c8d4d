//! The nodes of the cluster and their pods, shared by workload and kubelets.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use kubevitals_model::Timestamp;
use parking_lot::RwLock;

use crate::clock::millis_between;
use crate::kubelet::usage;
use crate::seed::Seed;
use crate::workload::Pod;

/// The pods of a node contribute to its counters for this long after their removal, until every
/// earlier sample has been replaced by a newer one.
const DEPARTED_FOR_MILLIS: u64 = 2 * usage::MAX_SAMPLE_GAP_MILLIS;

/// 127.1.0.1: apart from 127.0.0.1, where a machine's own services listen.
const FIRST_ADDRESS: u32 = 0x7F01_0001;
/// Number of addresses from 127.1.0.1 to the end of 127.0.0.0/8.
pub const MAX_NODES: usize = 0x00FE_FFFE;

/// All nodes of a simulated cluster: the present ones, and spares that may replace them.
#[derive(Debug)]
pub struct NodeSet {
    nodes: Box<[Node]>,
    /// Number of present nodes.
    count: usize,
    seed: Seed,
}

#[derive(Debug)]
pub struct Node {
    name: Arc<str>,
    ip: Ipv4Addr,
    /// Set as soon as the kubelet listens.
    address: OnceLock<SocketAddr>,
    present: AtomicBool,
    pods: RwLock<NodePods>,
}

#[derive(Debug, Default)]
struct NodePods {
    present: Vec<Arc<Pod>>,
    departed: Vec<(Timestamp, Arc<Pod>)>,
    /// CPU time of the pods that are no longer in `departed`.
    retired_cpu: u64,
}

/// The pods of a node at one instant.
#[derive(Debug, Clone, Default)]
pub struct NodeView {
    /// Pods on the node.
    pub present: Vec<Arc<Pod>>,
    /// Recently removed pods.
    pub(crate) departed: Vec<(Timestamp, Arc<Pod>)>,
    pub(crate) retired_cpu: u64,
}

impl NodeSet {
    /// Returns `count` nodes, named `prefix-00000` and so on, with addresses from 127.1.0.1 on.
    pub fn new(count: usize, prefix: &str, seed: Seed) -> Arc<Self> {
        Self::with_spares(count, 0, prefix, seed)
    }

    /// Adds spare nodes, which are absent at first and replace others at run time.
    pub fn with_spares(count: usize, spares: usize, prefix: &str, seed: Seed) -> Arc<Self> {
        let nodes = (0..count.saturating_add(spares))
            .map(|index| Node {
                name: format!("{prefix}-{index:05}").into(),
                ip: loopback(index),
                address: OnceLock::new(),
                present: AtomicBool::new(index < count),
                pods: RwLock::default(),
            })
            .collect();
        Arc::new(Self { nodes, count, seed })
    }

    /// All nodes in the order of their names, including absent ones.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Number of present nodes.
    pub fn count(&self) -> usize {
        self.count
    }

    pub fn find(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| *node.name == *name)
    }

    pub fn seed(&self) -> Seed {
        self.seed
    }

    /// Returns the index of the node with this address.
    pub(crate) fn index_of(&self, ip: Ipv4Addr) -> Option<usize> {
        let index = usize::try_from(u32::from(ip).checked_sub(FIRST_ADDRESS)?).ok()?;
        (index < self.nodes.len()).then_some(index)
    }
}

fn loopback(index: usize) -> Ipv4Addr {
    let offset = u32::try_from(index.min(MAX_NODES - 1)).unwrap_or(0);
    Ipv4Addr::from(FIRST_ADDRESS + offset)
}

impl Node {
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Its address in the Node object.
    pub fn ip(&self) -> Ipv4Addr {
        self.address.get().map_or(self.ip, |address| match address {
            SocketAddr::V4(address) => *address.ip(),
            SocketAddr::V6(_) => self.ip,
        })
    }

    /// The address of its kubelet, IPv6 with [`Binding::Ipv6Ports`](crate::kubelet::Binding).
    pub fn host(&self) -> IpAddr {
        self.address
            .get()
            .map_or(IpAddr::V4(self.ip), SocketAddr::ip)
    }

    /// Whether the node exists: kubelets of absent nodes do not respond.
    pub fn is_present(&self) -> bool {
        self.present.load(Ordering::SeqCst)
    }

    pub(crate) fn set_present(&self, present: bool) {
        self.present.store(present, Ordering::SeqCst);
    }

    /// The address of its kubelet, once it listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address.get().copied()
    }

    /// The port of its kubelet: 10250 until it listens.
    pub fn port(&self) -> u16 {
        self.address().map_or(10_250, |address| address.port())
    }

    pub fn view(&self) -> NodeView {
        let pods = self.pods.read();
        NodeView {
            present: pods.present.clone(),
            departed: pods.departed.clone(),
            retired_cpu: pods.retired_cpu,
        }
    }

    pub(crate) fn set_address(&self, address: SocketAddr) {
        // Ignores a second fleet: a node set is used for one fleet only.
        let _ = self.address.set(address);
    }

    /// Adds or replaces a pod.
    pub(crate) fn put(&self, pod: &Arc<Pod>) {
        let mut pods = self.pods.write();
        // From the end: the youngest pods change most often, and each lookup is a cache miss.
        let mut existing = pods.present.iter_mut().rev();
        match existing.find(|existing| existing.uid == pod.uid) {
            Some(existing) => *existing = Arc::clone(pod),
            None => pods.present.push(Arc::clone(pod)),
        }
    }

    /// Removes a pod.
    pub(crate) fn remove(&self, pod: &Arc<Pod>, now: Timestamp) {
        let mut pods = self.pods.write();
        let NodePods {
            present,
            departed,
            retired_cpu,
        } = &mut *pods;
        if let Some(index) = present.iter().rposition(|existing| existing.uid == pod.uid) {
            present.remove(index);
        }
        departed.retain(|(left, gone)| {
            let keep = millis_between(*left, now) < DEPARTED_FOR_MILLIS;
            if !keep {
                *retired_cpu = retired_cpu.saturating_add(usage::pod_cpu(gone, *left));
            }
            keep
        });
        departed.push((now, Arc::clone(pod)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_map_back_to_their_nodes() {
        let node_set = NodeSet::new(70_000, "node", Seed::new(1));
        for index in [0, 1, 254, 255, 256, 65_535, 69_999] {
            let node = &node_set.nodes()[index];
            assert!(node.ip().is_loopback());
            assert_eq!(node_set.index_of(node.ip()), Some(index));
        }
        assert_eq!(node_set.index_of(Ipv4Addr::LOCALHOST), None);
        assert_eq!(node_set.index_of(Ipv4Addr::new(127, 9, 0, 0)), None);
        assert_eq!(&**node_set.nodes()[17].name(), "node-00017");
    }
}
