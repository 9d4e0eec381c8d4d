//! A fair queue for work that needs a processor: handshakes and long responses.
//!
//! A runtime polls its tasks first come, first served. When hundreds of connections have a
//! handshake to compute or a long list to write, a request for `/livez` waits behind all of them,
//! once for every step of its own. Such work waits in this queue instead: as many tasks as there
//! are processors are with the runtime, whose own queue stays short, and this queue chooses the
//! next one.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use hashbrown::HashMap;
use parking_lot::{Mutex, MutexGuard};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use crate::source::Source;

/// Grants a limited number of permits at a time, fairly between sources.
#[derive(Debug)]
pub(crate) struct FairQueue {
    state: Mutex<QueueState>,
    metrics: QueueMetrics,
}

/// Metrics of one queue.
#[derive(Clone, Debug, Default)]
pub struct QueueMetrics {
    /// Number of waiters.
    pub depth: Gauge,
    /// Total number of acquisitions that had to wait.
    pub queued: Counter,
}

#[derive(Debug)]
struct QueueState {
    /// Permits that are neither held nor granted; none while there are waiters.
    free: usize,
    waiting: Vec<Waiter>,
    /// Waiters that were granted a permit and have not been polled since.
    granted: Vec<u64>,
    /// Shares of the sources that have waiters.
    shares: HashMap<Source, Share>,
    /// The virtual time of start-time fair queueing: the permits of the source that was served
    /// last. A new source starts here.
    virtual_time: u64,
    /// Whether the newest connection is served next, else the oldest.
    newest_first: bool,
    next_id: u64,
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    source: Source,
    priority: Priority,
    waker: Waker,
}

#[derive(Debug)]
struct Share {
    permits: u64,
    waiting: usize,
}

/// The order among the waiters of one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Priority {
    /// First in, first out, by a number that counts up.
    Fifo(u64),
    /// A connection by its number; those with work under way come first.
    Connection {
        /// Counts up with every connection.
        number: u64,
        /// Whether the connection has held a permit before.
        has_begun: bool,
    },
}

/// A permit of a [`FairQueue`]: idle, waiting or held. Dropping it releases it.
#[derive(Debug)]
pub(crate) struct Permit {
    queue: Arc<FairQueue>,
    source: Source,
    state: PermitState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PermitState {
    Idle,
    Waiting(u64),
    Held,
}

impl FairQueue {
    /// Creates a queue with `permits` permits, at least one.
    pub(crate) fn new(permits: usize, metrics: QueueMetrics) -> Arc<Self> {
        let state = QueueState {
            free: permits.max(1),
            waiting: Vec::new(),
            granted: Vec::new(),
            shares: HashMap::new(),
            virtual_time: 0,
            newest_first: true,
            next_id: 0,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            metrics,
        })
    }

    /// Returns an idle permit for work of a source.
    pub(crate) fn permit(self: &Arc<Self>, source: Source) -> Permit {
        Permit {
            queue: Arc::clone(self),
            source,
            state: PermitState::Idle,
        }
    }

    /// Passes a permit on to the next waiter.
    fn release(&self, mut state: MutexGuard<'_, QueueState>) {
        let granted = state.grant();
        drop(state);
        if let Some(waker) = granted {
            self.metrics.depth.dec();
            waker.wake();
        }
    }
}

impl QueueState {
    fn push(&mut self, source: Source, id: u64, priority: Priority, waker: &Waker) {
        let permits = self.virtual_time;
        let share = self.shares.entry(source);
        share
            .or_insert(Share {
                permits,
                waiting: 0,
            })
            .waiting += 1;
        self.waiting.push(Waiter {
            id,
            source,
            priority,
            waker: waker.clone(),
        });
    }

    /// Grants a free permit to the source with the fewest permits, and there to the waiter with the
    /// first priority.
    fn grant(&mut self) -> Option<Waker> {
        let permits = |waiter: &Waiter| self.shares.get(&waiter.source).map_or(0, |s| s.permits);
        let next =
            self.waiting.iter().enumerate().min_by_key(|(_, waiter)| {
                (permits(waiter), waiter.priority.key(self.newest_first))
            });
        let Some((index, _)) = next else {
            self.free += 1;
            return None;
        };
        let waiter = self.waiting.swap_remove(index);
        self.newest_first = !self.newest_first;
        if let Some(share) = self.shares.get_mut(&waiter.source) {
            self.virtual_time = self.virtual_time.max(share.permits);
            share.permits += 1;
        }
        self.removed(waiter.source);
        self.granted.push(waiter.id);
        Some(waiter.waker)
    }

    /// Forgets one waiter of a source.
    fn removed(&mut self, source: Source) {
        if let Some(share) = self.shares.get_mut(&source) {
            share.waiting -= 1;
            if share.waiting == 0 {
                self.shares.remove(&source);
            }
        }
    }

    /// Whether a waiter was granted a permit; forgets the grant.
    fn take_grant(&mut self, id: u64) -> bool {
        let index = self.granted.iter().position(|granted| *granted == id);
        index.map(|index| self.granted.swap_remove(index)).is_some()
    }

    fn waiter(&mut self, id: u64) -> Option<(usize, &mut Waiter)> {
        let mut waiting = self.waiting.iter_mut().enumerate();
        waiting.find(|(_, waiter)| waiter.id == id)
    }
}

impl Permit {
    /// Ready while the permit is held. A free permit is granted with the next poll, so that the
    /// task passes through the runtime's queue once.
    pub(crate) fn poll_acquire(
        &mut self,
        priority: Option<Priority>,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        let mut state = self.queue.state.lock();
        match self.state {
            PermitState::Held => return Poll::Ready(()),
            PermitState::Waiting(id) if state.take_grant(id) => {
                self.state = PermitState::Held;
                return Poll::Ready(());
            }
            PermitState::Waiting(id) => {
                if let Some((_, waiter)) = state.waiter(id) {
                    waiter.waker.clone_from(context.waker());
                }
            }
            PermitState::Idle => {
                state.next_id += 1;
                let id = state.next_id;
                self.state = PermitState::Waiting(id);
                if state.free > 0 {
                    state.free -= 1;
                    state.granted.push(id);
                    drop(state);
                    context.waker().wake_by_ref();
                } else {
                    let priority = priority.unwrap_or(Priority::Fifo(id));
                    state.push(self.source, id, priority, context.waker());
                    drop(state);
                    self.queue.metrics.depth.inc();
                    self.queue.metrics.queued.inc();
                }
            }
        }
        Poll::Pending
    }

    /// Releases the permit if it is held; a waiting one keeps waiting.
    pub(crate) fn release(&mut self) {
        if self.is_held() {
            self.state = PermitState::Idle;
            self.queue.release(self.queue.state.lock());
        }
    }

    /// Releases the permit, or stops waiting for it.
    pub(crate) fn cancel(&mut self) {
        self.release();
        let PermitState::Waiting(id) = self.state else {
            return;
        };
        self.state = PermitState::Idle;
        let mut state = self.queue.state.lock();
        if state.take_grant(id) {
            self.queue.release(state);
        } else if let Some((index, _)) = state.waiter(id) {
            state.waiting.swap_remove(index);
            state.removed(self.source);
            drop(state);
            self.queue.metrics.depth.dec();
        }
    }

    /// Whether the permit is held.
    pub(crate) fn is_held(&self) -> bool {
        self.state == PermitState::Held
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl Priority {
    /// The smallest key comes first. Connections with work under way come before the others, since
    /// that work would be wasted if they gave up. Otherwise the newest and the oldest alternate:
    /// the client of the newest surely still waits, and the oldest has waited longest; in a burst
    /// of equal clients, none at either end waits for all others.
    fn key(self, newest_first: bool) -> (bool, u64) {
        match self {
            Self::Fifo(number) => (false, number),
            Self::Connection { number, has_begun } => {
                let key = if newest_first {
                    u64::MAX - number
                } else {
                    number
                };
                (!has_begun, key)
            }
        }
    }
}

#[cfg(test)]
mod tests;
