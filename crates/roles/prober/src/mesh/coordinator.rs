//! The side of the cluster mode: gives peers, and collects what nodes measured.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use kubevitals_http::query::Query;
use kubevitals_inventory::NodeStatus;
use kubevitals_model::{Clock, Pod};
use kubevitals_telemetry::{Page, PageRequest, PageResponse};
use parking_lot::Mutex;
use serde::Serialize;

use super::ring::{MeshPeer, MeshRing};

/// Most peers that a node may ask for.
const MAX_PEERS: usize = 16;

/// Reports older than this do not count: the node may be gone.
const MAX_AGE: Duration = Duration::from_mins(3);

/// Failed pairs that are listed. All are counted.
const MAX_LISTED: usize = 200;

/// Gives peers and collects reports. Clones share them.
#[derive(Debug, Clone)]
pub struct MeshCoordinator(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clock: Clock,
    ring: Mutex<Arc<MeshRing>>,
    /// Of nodes on the ring only.
    reports: Mutex<HashMap<Arc<str>, Report>>,
}

/// What a node measured last.
#[derive(Debug)]
struct Report {
    at: Duration,
    /// The peers, and how long each took; `None` if it failed.
    peers: Vec<(Arc<str>, Option<Duration>)>,
}

#[derive(Debug, Serialize)]
struct Matrix {
    probers: usize,
    reporting: usize,
    zones: Vec<ZonePair>,
    failed: Vec<FailedPair>,
}

/// The paths from nodes of a zone to nodes of a zone.
#[derive(Debug, Default, Serialize)]
struct ZonePair {
    source: Arc<str>,
    target: Arc<str>,
    pairs: u64,
    failed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    median_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_seconds: Option<f64>,
}

#[derive(Debug, Serialize)]
struct FailedPair {
    source: Arc<str>,
    target: Arc<str>,
}

impl MeshCoordinator {
    pub fn new(clock: Clock) -> Self {
        Self(Arc::new(Inner {
            clock,
            ring: Mutex::default(),
            reports: Mutex::default(),
        }))
    }

    /// Takes the probers of all nodes. One that is being deleted is no peer any more, so that a
    /// node that is drained does not look broken.
    pub(crate) fn update(&self, statuses: &[NodeStatus], probers: &[Arc<Pod>]) {
        let zones: HashMap<&str, &Arc<str>> = statuses
            .iter()
            .map(|status| (&*status.name, &status.zone))
            .collect();
        let peers = probers.iter().filter_map(|pod| {
            let node = pod.summary.node.as_ref()?;
            let is_gone = pod.meta.deleted.is_some() || pod.summary.phase.is_final();
            Some(MeshPeer {
                node: Arc::clone(node),
                zone: Arc::clone(zones.get(&**node).filter(|_| !is_gone)?),
                address: pod.pod_ip.as_ref()?.parse().ok()?,
            })
        });
        let ring = Arc::new(MeshRing::new(peers));
        let now = self.0.clock.moment().monotonic;
        self.0.reports.lock().retain(|node, report| {
            ring.get(node).is_some() && now.saturating_sub(report.at) <= MAX_AGE
        });
        *self.0.ring.lock() = ring;
    }

    fn ring(&self) -> Arc<MeshRing> {
        Arc::clone(&self.0.ring.lock())
    }

    /// The pages `/mesh` and `/mesh/peers`.
    pub fn pages(&self) -> Vec<Page> {
        let (matrix, peers) = (self.clone(), self.clone());
        vec![
            Page::new(
                "/mesh",
                "paths between nodes, zone by zone, as JSON",
                move |_| {
                    let body = serde_json::to_vec(&matrix.matrix()).unwrap_or_default();
                    async move { PageResponse::json(StatusCode::OK, body) }
                },
            ),
            Page::new(
                "/mesh/peers",
                "the peers of a node, ?node=NAME, for the probers of nodes",
                move |request| {
                    let response = peers.peers(&request);
                    async move { response }
                },
            ),
        ]
    }

    /// Answers with the peers of a node, after taking its report.
    fn peers(&self, request: &PageRequest) -> PageResponse {
        let query = Query::new(Some(&request.query));
        let ring = self.ring();
        let node = query.first("node").unwrap_or_default();
        let count = query.first("count").and_then(|text| text.parse().ok());
        let peers = ring.after(&node, count.unwrap_or(3).min(MAX_PEERS));
        // Whoever may connect may say anything: only nodes of the ring, about nodes of the ring.
        if let (Some(own), Some(text)) = (ring.get(&node), query.first("measured")) {
            let measured = text.split(',').take(MAX_PEERS).filter_map(|one| {
                let (peer, time) = one.rsplit_once(':')?;
                let peer = Arc::clone(&ring.get(peer)?.node);
                Some((peer, time.parse().ok().map(Duration::from_micros)))
            });
            let report = Report {
                at: self.0.clock.moment().monotonic,
                peers: measured.collect(),
            };
            self.0.reports.lock().insert(Arc::clone(&own.node), report);
        }
        PageResponse::json(
            StatusCode::OK,
            serde_json::to_vec(&peers).unwrap_or_default(),
        )
    }

    fn matrix(&self) -> Matrix {
        let ring = self.ring();
        let reports = self.0.reports.lock();
        let mut zones: BTreeMap<(Arc<str>, Arc<str>), (u64, Vec<Duration>)> = BTreeMap::new();
        let mut failed = Vec::new();
        for (source, report) in &*reports {
            for (target, time) in &report.peers {
                let (Some(from), Some(to)) = (ring.get(source), ring.get(target)) else {
                    continue;
                };
                let pair = (Arc::clone(&from.zone), Arc::clone(&to.zone));
                let (pairs, times) = zones.entry(pair).or_default();
                *pairs += 1;
                times.extend(*time);
                if time.is_none() {
                    failed.push(FailedPair {
                        source: Arc::clone(source),
                        target: Arc::clone(target),
                    });
                }
            }
        }
        failed.sort_by(|a, b| (&a.target, &a.source).cmp(&(&b.target, &b.source)));
        failed.truncate(MAX_LISTED);
        Matrix {
            probers: ring.len(),
            reporting: reports.len(),
            zones: zones
                .into_iter()
                .map(|((source, target), (pairs, mut times))| {
                    times.sort_unstable();
                    let median = times.get(times.len() / 2);
                    ZonePair {
                        source,
                        target,
                        pairs,
                        failed: pairs.saturating_sub(times.len() as u64),
                        median_seconds: median.map(Duration::as_secs_f64),
                        max_seconds: times.last().map(Duration::as_secs_f64),
                    }
                })
                .collect(),
            failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderMap;
    use kubevitals_model::{SteppedClock, Timestamp};

    fn request(query: &str) -> PageRequest {
        PageRequest {
            query: query.to_owned(),
            headers: HeaderMap::new(),
        }
    }

    #[test]
    fn the_matrix_has_zones_and_the_pairs_that_failed() {
        let time = SteppedClock::new(Timestamp::from_unix_millis(0));
        let coordinator = MeshCoordinator::new(time.clock());
        let peer = |node: &str, zone: &str| MeshPeer {
            node: node.into(),
            zone: zone.into(),
            address: [10, 0, 0, 1].into(),
        };
        let peers = [peer("a", "z1"), peer("b", "z1"), peer("c", "z2")];
        *coordinator.0.ring.lock() = Arc::new(MeshRing::new(peers));
        let answer = coordinator.peers(&request("node=a&count=2&measured=b:1500,c:-,x:1,b"));
        let answer: Vec<MeshPeer> = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(answer.len(), 2);
        assert!(answer.iter().all(|peer| &*peer.node != "a"));
        // Nobody but a node of the ring can report.
        coordinator.peers(&request("node=x&measured=a:1"));
        let text = serde_json::to_string(&coordinator.matrix()).unwrap();
        assert_eq!(
            text,
            r#"{"probers":3,"reporting":1,"zones":[{"source":"z1","target":"z1","pairs":1,"failed":0,"median_seconds":0.0015,"max_seconds":0.0015},{"source":"z1","target":"z2","pairs":1,"failed":1}],"failed":[{"source":"a","target":"c"}]}"#
        );
        time.advance(MAX_AGE + Duration::from_secs(1));
        coordinator.update(&[], &[]);
        assert_eq!(coordinator.matrix().reporting, 0);
        assert!(coordinator.ring().is_empty());
    }
}
