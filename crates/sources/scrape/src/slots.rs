//! The limit of connections to kubelets: each takes an open file.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::permits::{Permit, Permits, Standing};

/// Maximum number of connections that are opened in turns. A turn takes a handshake and a response:
/// a few of them serve thousands of nodes.
const MAX_TURNS: usize = 64;

/// Slots for connections. Most nodes keep theirs between scrapes. Where nodes are more than that,
/// the others share the rest: they connect for each scrape, and wait for their turn.
pub(crate) struct ConnectionSlots {
    /// Number of nodes that can keep their connections.
    max_kept: usize,
    kept: Arc<Semaphore>,
    turns: Permits,
    /// Whether connections are opened in turns, for the log.
    is_in_turns: AtomicBool,
}

/// The slot of one connection.
pub(crate) enum ConnectionSlot {
    Kept { _permit: OwnedSemaphorePermit },
    Turn { _permit: Permit },
}

impl ConnectionSlots {
    pub(crate) fn new(limit: usize) -> Self {
        let limit = limit.clamp(2, Semaphore::MAX_PERMITS);
        let turns = (limit / 4).clamp(1, MAX_TURNS);
        let max_kept = limit - turns;
        Self {
            max_kept,
            kept: Arc::new(Semaphore::new(max_kept)),
            turns: Permits::new(turns),
            is_in_turns: AtomicBool::new(false),
        }
    }

    /// Returns a slot that is kept between scrapes, if there is one left.
    pub(crate) fn try_keep(&self, nodes: usize) -> Option<ConnectionSlot> {
        let permit = Arc::clone(&self.kept).try_acquire_owned().ok()?;
        if nodes <= self.max_kept && self.is_in_turns.swap(false, Ordering::Relaxed) {
            tracing::info!(
                nodes,
                max_kept = self.max_kept,
                "connections to all kubelets are kept open again"
            );
        }
        Some(ConnectionSlot::Kept { _permit: permit })
    }

    /// Waits for a slot that is used for one scrape.
    pub(crate) async fn turn(&self, nodes: usize, standing: Standing) -> ConnectionSlot {
        if !self.is_in_turns.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                nodes,
                max_kept = self.max_kept,
                "limit of open files is too low to keep a connection to each kubelet, opening them in turns"
            );
        }
        ConnectionSlot::Turn {
            _permit: self.turns.acquire(standing).await,
        }
    }

    /// Returns the number of nodes that keep their connections, if the others connect in turns.
    pub(crate) fn in_turns(&self) -> Option<usize> {
        self.is_in_turns
            .load(Ordering::Relaxed)
            .then_some(self.max_kept)
    }
}

impl ConnectionSlot {
    /// Returns whether the connection may stay open after the scrape.
    pub(crate) fn is_kept(&self) -> bool {
        matches!(self, Self::Kept { .. })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn connections_beyond_the_limit_are_opened_in_turns() {
        let slots = ConnectionSlots::new(8);
        let kept: Vec<_> = std::iter::from_fn(|| slots.try_keep(20)).collect();
        assert_eq!((kept.len(), slots.in_turns()), (6, None));
        let turn = || slots.turn(20, Standing::Good).now_or_never();
        let turns = [turn(), turn()];
        assert!(turns.iter().flatten().all(|slot| !slot.is_kept()));
        assert!(turn().is_none(), "8 connections are open");
        assert_eq!(slots.in_turns(), Some(6));
        drop(kept);
        assert!(slots.try_keep(20).is_some_and(|slot| slot.is_kept()));
        assert_eq!(slots.in_turns(), Some(6), "nodes are still more");
        drop(slots.try_keep(6));
        assert_eq!(slots.in_turns(), None);
    }
}
