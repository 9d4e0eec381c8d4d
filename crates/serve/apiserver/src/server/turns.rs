//! Turns: who may use a processor next where many want to at once.
//!
//! A runtime takes its tasks first come, first served. When hundreds of connections have a
//! handshake to compute or a long list to write, whoever asks for `/livez` waits behind all of
//! them, once for every step of its own. So such work waits in a line of ours: as many as there are
//! processors are with the runtime, whose queue stays short, and who comes next is for us to say.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use hashbrown::HashMap;

use crate::metrics::WaitMetrics;

/// Hands out turns, a few at a time.
pub(super) struct Turns {
    line: Mutex<Line>,
    metrics: WaitMetrics,
}

/// Who works, and who waits.
struct Line {
    /// Turns that nobody has; none while somebody waits.
    free: usize,
    waiting: Vec<Waiter>,
    /// Those whose turn it is, but who have not noticed yet.
    called: Vec<u64>,
    /// What sources have had; only of those that wait.
    shares: HashMap<Source, Share>,
    /// What the source that was called last had had: whoever joins the line begins there.
    level: u64,
    /// Whether those of a rank are called from the other end next time.
    from_behind: bool,
    next: u64,
}

struct Waiter {
    number: u64,
    source: Source,
    rank: Rank,
    waker: Waker,
}

struct Share {
    turns: u64,
    waiting: usize,
}

/// Where a connection comes from: an address, or the network that one owner of IPv6 addresses has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Source(u64);

/// Who comes first among those from one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rank {
    /// Whoever joined the line first.
    First(u64),
    /// A connection by its number, with which work has begun or not.
    Connection { number: u64, has_begun: bool },
}

/// What somebody has or waits for. It goes back when dropped.
pub(super) struct Ticket {
    turns: Arc<Turns>,
    source: Source,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Waiting(u64),
    Working,
}

impl Turns {
    /// So many at a time.
    pub(super) fn new(places: usize, metrics: WaitMetrics) -> Arc<Self> {
        let line = Line {
            free: places.max(1),
            waiting: Vec::new(),
            called: Vec::new(),
            shares: HashMap::new(),
            level: 0,
            from_behind: false,
            next: 0,
        };
        Arc::new(Self {
            line: Mutex::new(line),
            metrics,
        })
    }

    /// For somebody who will want turns.
    pub(super) fn ticket(self: &Arc<Self>, source: Source) -> Ticket {
        Ticket {
            turns: Arc::clone(self),
            source,
            state: State::Idle,
        }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes a turn on.
    fn give_back(&self, mut line: MutexGuard<'_, Line>) {
        let called = line.call();
        drop(line);
        if let Some(waker) = called {
            self.metrics.waiting.dec();
            waker.wake();
        }
    }
}

impl Line {
    fn join(&mut self, source: Source, number: u64, rank: Rank, waker: &Waker) {
        let turns = self.level;
        let share = self.shares.entry(source);
        share.or_insert(Share { turns, waiting: 0 }).waiting += 1;
        self.waiting.push(Waiter {
            number,
            source,
            rank,
            waker: waker.clone(),
        });
    }

    /// Gives a turn that has become free to the best of those who wait: of the source that has had
    /// the fewest, the one of the first rank.
    fn call(&mut self) -> Option<Waker> {
        let had = |waiter: &Waiter| self.shares.get(&waiter.source).map_or(0, |s| s.turns);
        let waiting = self.waiting.iter().enumerate();
        let best =
            waiting.min_by_key(|(_, waiter)| (had(waiter), waiter.rank.place(self.from_behind)));
        let Some((at, _)) = best else {
            self.free += 1;
            return None;
        };
        let waiter = self.waiting.swap_remove(at);
        self.from_behind = !self.from_behind;
        if let Some(share) = self.shares.get_mut(&waiter.source) {
            self.level = self.level.max(share.turns);
            share.turns += 1;
        }
        self.left(waiter.source);
        self.called.push(waiter.number);
        Some(waiter.waker)
    }

    /// One of a source waits no longer.
    fn left(&mut self, source: Source) {
        if let Some(share) = self.shares.get_mut(&source) {
            share.waiting -= 1;
            if share.waiting == 0 {
                self.shares.remove(&source);
            }
        }
    }

    /// Whether this one was called; it is told once.
    fn was_called(&mut self, number: u64) -> bool {
        let at = self.called.iter().position(|called| *called == number);
        at.map(|at| self.called.swap_remove(at)).is_some()
    }

    fn waiter(&mut self, number: u64) -> Option<(usize, &mut Waiter)> {
        let mut waiting = self.waiting.iter_mut().enumerate();
        waiting.find(|(_, waiter)| waiter.number == number)
    }
}

impl Ticket {
    /// Ready once it is one's turn, which it never is at once: also where a place is free it goes
    /// once through the runtime's queue. There are no more threads than places, so that otherwise
    /// everybody would find one free, in the order of that queue. Without a rank whoever came first
    /// is first.
    pub(super) fn poll_turn(&mut self, rank: Option<Rank>, context: &mut Context<'_>) -> Poll<()> {
        let mut line = self.turns.line();
        match self.state {
            State::Working => return Poll::Ready(()),
            State::Waiting(number) if line.was_called(number) => {
                self.state = State::Working;
                return Poll::Ready(());
            }
            State::Waiting(number) => {
                if let Some((_, waiter)) = line.waiter(number) {
                    waiter.waker.clone_from(context.waker());
                }
            }
            State::Idle => {
                line.next += 1;
                let number = line.next;
                self.state = State::Waiting(number);
                if line.free > 0 {
                    line.free -= 1;
                    line.called.push(number);
                    drop(line);
                    context.waker().wake_by_ref();
                } else {
                    let rank = rank.unwrap_or(Rank::First(number));
                    line.join(self.source, number, rank, context.waker());
                    drop(line);
                    self.turns.metrics.joined();
                }
            }
        }
        Poll::Pending
    }

    /// Ends the turn; who waits goes on waiting.
    pub(super) fn end(&mut self) {
        if self.is_working() {
            self.state = State::Idle;
            self.turns.give_back(self.turns.line());
        }
    }

    /// Ends the turn, or gives up waiting for one.
    pub(super) fn leave(&mut self) {
        self.end();
        let State::Waiting(number) = self.state else {
            return;
        };
        self.state = State::Idle;
        let mut line = self.turns.line();
        if line.was_called(number) {
            self.turns.give_back(line);
        } else if let Some((at, _)) = line.waiter(number) {
            line.waiting.swap_remove(at);
            line.left(self.source);
            drop(line);
            self.turns.metrics.waiting.dec();
        }
    }

    pub(super) fn is_working(&self) -> bool {
        self.state == State::Working
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Source {
    /// Of an address.
    pub(super) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(u64::from(address.to_bits())),
            // No network of IPv6 that is in use begins with as many zeros as an address of IPv4
            // here.
            IpAddr::V6(address) => Self((address.to_bits() >> 64) as u64),
        }
    }
}

impl Rank {
    /// What is smaller comes first. Connections with which work has begun are before the others,
    /// since it would else be for nothing. Otherwise the newest and the oldest come by turns: for
    /// the newest somebody surely still waits, and the oldest has waited longest; in a storm of
    /// equals nobody at either end of it waits for all the others.
    fn place(self, from_behind: bool) -> (bool, u64) {
        match self {
            Self::First(number) => (false, number),
            Self::Connection { number, has_begun } => {
                let place = if from_behind {
                    number
                } else {
                    u64::MAX - number
                };
                (!has_begun, place)
            }
        }
    }
}

#[cfg(test)]
mod tests;
