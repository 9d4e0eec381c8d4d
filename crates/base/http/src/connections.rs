//! The open connections of a server, and which of them is closed when they run out.
//!
//! A server without a policy serves those who came first: a thousand silent connections keep all
//! probes waiting until they time out. Here a new connection is always admitted, unless every other
//! one has a request in flight.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::Instant;

use crate::conn_state::{ConnState, Standing};
use crate::limits::ServerMetrics;
use crate::source::Source;

/// The open connections of a server. Each can be inspected and closed on its own.
pub(crate) struct Connections {
    max: usize,
    tasks: JoinSet<()>,
    entries: HashMap<Id, Entry>,
    /// The number of entries that were evicted and have not ended yet.
    evicted: usize,
    metrics: ServerMetrics,
}

struct Entry {
    state: Arc<ConnState>,
    task: AbortHandle,
    is_evicted: bool,
}

/// A connection that may be evicted: its place in the order of evictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Candidate<K> {
    key: K,
    source: Source,
    group: Group,
    /// When it connected or became idle.
    since: Instant,
}

/// The groups of candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    /// No request was received.
    Silent,
    /// Idle, and never authenticated.
    Anonymous,
    /// Idle.
    Authenticated,
    /// The first request is in flight, and not authenticated.
    Unproven,
}

impl Connections {
    pub(crate) fn new(max: usize, metrics: ServerMetrics) -> Self {
        Self {
            max: max.max(1),
            tasks: JoinSet::new(),
            entries: HashMap::new(),
            evicted: 0,
            metrics,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn spawn(
        &mut self,
        task: impl Future<Output = ()> + Send + 'static,
        state: Arc<ConnState>,
    ) {
        let task = self.tasks.spawn(task);
        self.entries.insert(
            task.id(),
            Entry {
                state,
                task,
                is_evicted: false,
            },
        );
        self.metrics.connections.inc();
    }

    /// Whether one more connection can be served; evicts another one for it if necessary.
    pub(crate) fn make_room(&mut self) -> bool {
        if self.len() - self.evicted < self.max {
            return true;
        }
        // Evicted connections end soon. Too many of them at a time would defeat the limit.
        if self.evicted > self.max / 8 {
            return false;
        }
        let candidates = self.entries.iter().filter_map(|(id, entry)| {
            let state = &entry.state;
            let (group, since) = match state.standing() {
                Standing::Silent => (Group::Silent, state.since()),
                Standing::Unproven => (Group::Unproven, state.since()),
                Standing::Idle {
                    since,
                    authenticated,
                } if authenticated => (Group::Authenticated, since),
                Standing::Idle { since, .. } => (Group::Anonymous, since),
                Standing::Busy | Standing::Closing => return None,
            };
            (!entry.is_evicted).then_some(Candidate {
                key: *id,
                source: state.source(),
                group,
                since,
            })
        });
        let candidates: Vec<_> = candidates.collect();
        let Some(victim) = choose(&candidates, self.max) else {
            return false;
        };
        if let Some(entry) = self.entries.get_mut(&victim.key) {
            entry.is_evicted = true;
            self.evicted += 1;
            self.metrics.evictions.inc();
            match victim.group {
                // There may be a handshake or half a head, which nothing else ends.
                Group::Silent | Group::Unproven => entry.task.abort(),
                Group::Anonymous | Group::Authenticated => entry.state.close(),
            }
        }
        true
    }

    /// Removes a connection that has ended; pending while there is none.
    pub(crate) async fn ended(&mut self) {
        match self.tasks.join_next_with_id().await {
            Some(ended) => self.remove(ended),
            None => std::future::pending().await,
        }
    }

    fn remove(&mut self, ended: Result<(Id, ()), JoinError>) {
        let id = match ended {
            Ok((id, ())) => id,
            Err(error) => {
                if error.is_panic() {
                    tracing::error!(%error, "connection task panicked");
                }
                error.id()
            }
        };
        if let Some(entry) = self.entries.remove(&id) {
            self.evicted -= usize::from(entry.is_evicted);
            self.metrics.connections.dec();
        }
    }

    /// Closes all connections, and waits until they have ended.
    pub(crate) async fn drain(
        &mut self,
        timeout: Duration,
    ) -> Result<(), tokio::time::error::Elapsed> {
        for entry in self.entries.values() {
            entry.state.close();
        }
        tokio::time::timeout(timeout, async {
            while let Some(ended) = self.tasks.join_next_with_id().await {
                self.remove(ended);
            }
        })
        .await
    }

    pub(crate) async fn abort(&mut self) {
        self.tasks.abort_all();
        while let Some(ended) = self.tasks.join_next_with_id().await {
            self.remove(ended);
        }
    }
}

/// Chooses the connection to evict, if there is one.
///
/// Connections without a request go first once they are a quarter of all: an attacker has many of
/// them, and each client has one for a moment. Then idle connections, anonymous ones first. At last
/// those whose first request is in flight, so that unauthenticated requests cannot hold all. In a
/// group it is the turn of the source that has most, and there of the oldest.
fn choose<K: Copy>(candidates: &[Candidate<K>], max: usize) -> Option<Candidate<K>> {
    use Group::{Anonymous, Authenticated, Silent, Unproven};
    let of = |group| candidates.iter().filter(move |one| one.group == group);
    let order = if of(Silent).count() > max / 4 {
        [Silent, Anonymous, Authenticated, Unproven]
    } else {
        [Anonymous, Authenticated, Silent, Unproven]
    };
    order.into_iter().find_map(|group| {
        let mut counts: HashMap<Source, usize> = HashMap::new();
        for one in of(group) {
            *counts.entry(one.source).or_default() += 1;
        }
        let count = |one: &Candidate<K>| counts.get(&one.source).copied().unwrap_or_default();
        of(group)
            .max_by_key(|one| (count(one), std::cmp::Reverse(one.since)))
            .copied()
    })
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    /// A candidate by its number, the last byte of its address, its group, and its age in seconds.
    fn candidates(of: &[(u32, u8, Group, u64)]) -> Vec<Candidate<u32>> {
        let now = Instant::now() + Duration::from_hours(1);
        of.iter()
            .map(|(key, address, group, age)| Candidate {
                key: *key,
                source: Source::from(IpAddr::from([10, 0, 0, *address])),
                group: *group,
                since: now - Duration::from_secs(*age),
            })
            .collect()
    }

    fn chosen(of: &[(u32, u8, Group, u64)], max: usize) -> Option<u32> {
        choose(&candidates(of), max).map(|one| one.key)
    }

    use Group::{Anonymous, Authenticated, Silent, Unproven};

    #[tokio::test]
    async fn the_oldest_silent_connection_of_the_largest_source_is_evicted() {
        let silent = [
            (1, 9, Silent, 50),
            (2, 7, Silent, 3),
            (3, 7, Silent, 4),
            (4, 7, Silent, 2),
            (5, 1, Authenticated, 60),
        ];
        assert_eq!(chosen(&silent, 5), Some(3));
    }

    #[tokio::test]
    async fn few_handshakes_are_not_evicted_while_others_are_idle() {
        let idle = [
            (1, 7, Anonymous, 3),
            (2, 7, Anonymous, 4),
            (3, 8, Authenticated, 90),
            (4, 1, Silent, 5),
            (5, 6, Unproven, 100),
        ];
        assert_eq!(chosen(&idle, 5), Some(2));
        assert_eq!(chosen(&idle[2..], 5), Some(3));
        assert_eq!(chosen(&idle[3..], 5), Some(4));
        assert_eq!(chosen(&idle[4..], 5), Some(5));
        assert_eq!(chosen(&[], 5), None);
    }

    #[tokio::test]
    async fn among_equal_sources_the_oldest_is_evicted() {
        let silent: Vec<_> = (0..100)
            .map(|n| (u32::from(n), n, Silent, u64::from(n)))
            .collect();
        assert_eq!(chosen(&silent, 100), Some(99));
    }
}
