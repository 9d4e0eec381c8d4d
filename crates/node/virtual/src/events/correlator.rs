//! Which events are sent, merged or dropped, by the rules of client-go's `EventCorrelator`.
//!
//! | rule | limit |
//! |---|---|
//! | the same event again | its count is incremented |
//! | similar events, which differ in their message only | from the 10th within 600 s they are one event |
//! | events of an object | 25 at once, then one per 300 s |

use std::collections::BTreeSet;
use std::time::Duration;

use kubevitals_model::{Moment, Timestamp};

use super::{EventObject, NewEvent};
use crate::lru::Lru;

/// Entries of each table.
const ENTRIES: usize = 4_096;

const MAX_SIMILAR: usize = 10;
const SIMILAR_WINDOW: Duration = Duration::from_mins(10);
const SPAM_BURST: f64 = 25.0;
const SPAM_INTERVAL: Duration = Duration::from_mins(5);

/// Correlates events. It has no clock of its own.
#[derive(Debug)]
pub(super) struct Correlator {
    similar: Lru<SimilarKey, Similar>,
    seen: Lru<EventKey, Seen>,
    buckets: Lru<EventObject, Bucket>,
    names: u64,
}

/// What to do with an event.
pub(super) enum Verdict {
    Send(Box<Correlated>),
    Drop,
}

/// An event to send.
#[derive(Debug, Clone)]
pub(super) struct Correlated {
    pub(super) event: NewEvent,
    /// The name of a new event.
    pub(super) name: String,
    /// The name of the event to update.
    pub(super) update: Option<String>,
    pub(super) count: i32,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    key: EventKey,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SimilarKey {
    object: EventObject,
    is_warning: bool,
    reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum EventKey {
    One(NewEvent),
    Combined(SimilarKey),
}

#[derive(Debug)]
struct Similar {
    messages: BTreeSet<String>,
    last: Duration,
}

#[derive(Debug)]
struct Seen {
    name: Option<String>,
    count: i32,
    first: Timestamp,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    updated: Duration,
}

impl Correlator {
    pub(super) fn new() -> Self {
        Self {
            similar: Lru::new(ENTRIES),
            seen: Lru::new(ENTRIES),
            buckets: Lru::new(ENTRIES),
            names: 0,
        }
    }

    pub(super) fn correlate(&mut self, event: NewEvent, now: Moment) -> Verdict {
        let (mut event, key) = self.combine(event, now.monotonic);
        let (update, count, first) = self.observe(&key, now.wall);
        if !self.allows(&event.object, now.monotonic) {
            return Verdict::Drop;
        }
        if matches!(key, EventKey::Combined(_)) {
            event.message = format!("(combined from similar events): {}", event.message);
        }
        self.names += 1;
        let millis = u64::try_from(now.wall.unix_millis()).unwrap_or(0);
        // Two events of one millisecond differ by the number.
        let suffix = millis
            .wrapping_mul(1_000_000)
            .wrapping_add(self.names % 1_000_000);
        Verdict::Send(Box::new(Correlated {
            name: event_name(&event.object.name, suffix),
            event,
            update,
            count,
            first,
            last: now.wall,
            key,
        }))
    }

    /// Remembers the name that an event was sent with.
    pub(super) fn sent(&mut self, correlated: &Correlated, name: &str) {
        if let Some(seen) = self.seen.get_mut(&correlated.key) {
            seen.name = Some(name.to_owned());
        }
    }

    /// Replaces the key of an event that is one of too many similar ones.
    fn combine(&mut self, event: NewEvent, now: Duration) -> (NewEvent, EventKey) {
        let key = SimilarKey {
            object: EventObject {
                field_path: String::new(),
                ..event.object.clone()
            },
            is_warning: event.is_warning,
            reason: event.reason.clone(),
        };
        let similar = match self.similar.get_mut(&key) {
            Some(similar) if now.saturating_sub(similar.last) <= SIMILAR_WINDOW => similar,
            _ => {
                let fresh = Similar {
                    messages: BTreeSet::new(),
                    last: now,
                };
                self.similar.insert(key.clone(), fresh);
                let Some(similar) = self.similar.get_mut(&key) else {
                    return (event.clone(), EventKey::One(event));
                };
                similar
            }
        };
        similar.last = now;
        similar.messages.insert(event.message.clone());
        if similar.messages.len() < MAX_SIMILAR {
            return (event.clone(), EventKey::One(event));
        }
        similar.messages.pop_first();
        (event, EventKey::Combined(key))
    }

    /// Counts an event. Returns the name it was sent with, its count and its first time.
    fn observe(&mut self, key: &EventKey, now: Timestamp) -> (Option<String>, i32, Timestamp) {
        if let Some(seen) = self.seen.get_mut(key) {
            seen.count = seen.count.saturating_add(1);
            return (seen.name.clone(), seen.count, seen.first);
        }
        let seen = Seen {
            name: None,
            count: 1,
            first: now,
        };
        self.seen.insert(key.clone(), seen);
        (None, 1, now)
    }

    /// Takes a token of an object.
    fn allows(&mut self, object: &EventObject, now: Duration) -> bool {
        let key = EventObject {
            field_path: String::new(),
            ..object.clone()
        };
        if self.buckets.get_mut(&key).is_none() {
            let full = Bucket {
                tokens: SPAM_BURST,
                updated: now,
            };
            self.buckets.insert(key.clone(), full);
        }
        let Some(bucket) = self.buckets.get_mut(&key) else {
            return true;
        };
        let elapsed = now.saturating_sub(bucket.updated).as_secs_f64();
        let earned = elapsed / SPAM_INTERVAL.as_secs_f64();
        bucket.tokens = (bucket.tokens + earned).min(SPAM_BURST);
        bucket.updated = now;
        if bucket.tokens < 1.0 {
            return false;
        }
        bucket.tokens -= 1.0;
        true
    }
}

/// `name.hex`, within the length of a name.
fn event_name(object: &str, suffix: u64) -> String {
    let kept: String = object.chars().take(230).collect();
    format!("{}.{suffix:016x}", kept.trim_end_matches(['.', '-']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(message: &str) -> NewEvent {
        NewEvent {
            object: EventObject {
                kind: "Pod",
                namespace: "default".to_owned(),
                name: "web".to_owned(),
                uid: "1".to_owned(),
                field_path: "spec.containers{c}".to_owned(),
            },
            is_warning: true,
            reason: "Unhealthy".to_owned(),
            message: message.to_owned(),
        }
    }

    fn at(seconds: u64) -> Moment {
        let monotonic = Duration::from_secs(seconds);
        let wall = Timestamp::from_unix_millis(1_000_000_000);
        Moment {
            wall: wall.checked_add(monotonic).unwrap(),
            monotonic,
        }
    }

    fn sent(correlator: &mut Correlator, message: &str, now: Moment) -> Option<Correlated> {
        match correlator.correlate(event(message), now) {
            Verdict::Drop => None,
            Verdict::Send(correlated) => {
                let name = correlated.update.clone();
                let name = name.unwrap_or_else(|| correlated.name.clone());
                correlator.sent(&correlated, &name);
                Some(*correlated)
            }
        }
    }

    #[test]
    fn the_same_event_is_counted() {
        let mut correlator = Correlator::new();
        let first = sent(&mut correlator, "a", at(0)).unwrap();
        assert_eq!((first.count, &first.update), (1, &None));
        let second = sent(&mut correlator, "a", at(5)).unwrap();
        assert_eq!((second.count, second.update), (2, Some(first.name)));
        assert_eq!((second.first, second.last), (at(0).wall, at(5).wall));
    }

    #[test]
    fn the_tenth_similar_event_is_combined() {
        let mut correlator = Correlator::new();
        for number in 0..9 {
            let one = sent(&mut correlator, &number.to_string(), at(number)).unwrap();
            assert_eq!(one.event.message, number.to_string());
        }
        let tenth = sent(&mut correlator, "9", at(9)).unwrap();
        assert_eq!(tenth.event.message, "(combined from similar events): 9");
        assert_eq!(tenth.update, None);
        let next = sent(&mut correlator, "10", at(10)).unwrap();
        assert_eq!((next.count, next.update), (2, Some(tenth.name)));
        // A quiet time ends the series.
        let later = sent(&mut correlator, "11", at(10 + 601)).unwrap();
        assert_eq!(later.event.message, "11");
    }

    #[test]
    fn an_object_has_25_events_at_once_and_one_per_five_minutes() {
        let mut correlator = Correlator::new();
        let count = (0..100)
            .filter(|_| sent(&mut correlator, "a", at(0)).is_some())
            .count();
        assert_eq!(count, 25);
        assert!(sent(&mut correlator, "a", at(299)).is_none());
        let one = sent(&mut correlator, "a", at(301)).unwrap();
        // What was dropped is counted.
        assert_eq!(one.count, 102);
        assert!(sent(&mut correlator, "a", at(302)).is_none());
    }
}
