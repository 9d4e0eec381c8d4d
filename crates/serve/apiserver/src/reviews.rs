//! Questions on their way: equal ones are asked once, answers are remembered, and not all are asked
//! at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use hashbrown::HashMap;
use tokio::sync::Semaphore;

use crate::cache::TtlCache;
use crate::metrics::{CacheOutcome, ReviewMetrics};
use crate::review::ReviewError;

/// The most answers that are remembered of one kind.
const REMEMBERED: usize = 8192;
/// The most questions that are asked at once.
const AT_ONCE: usize = 64;
/// When to look for questions that everybody lost interest in.
const MANY_FLIGHTS: usize = 1024;

type Answer<V> = Result<V, ReviewError>;

/// What a question is known by: a hash of all of it, so that no secret is kept and every entry is
/// small.
pub(crate) type Key = [u8; 32];

/// Remembers answers of one kind. Clones share them.
pub(crate) struct Reviews<V> {
    shared: Arc<Inner<V>>,
}

struct Inner<V> {
    cache: TtlCache<Key, V>,
    flights: Mutex<HashMap<Key, WeakShared<BoxFuture<'static, Answer<V>>>>>,
    turns: Semaphore,
    failing: AtomicBool,
    metrics: ReviewMetrics,
}

impl<V: Clone + Send + Sync + 'static> Reviews<V> {
    pub(crate) fn new(metrics: ReviewMetrics) -> Self {
        Self {
            shared: Arc::new(Inner {
                cache: TtlCache::new(REMEMBERED),
                flights: Mutex::new(HashMap::new()),
                turns: Semaphore::new(AT_ONCE),
                failing: AtomicBool::new(false),
                metrics,
            }),
        }
    }

    /// The answer that is remembered, or that comes; `ttl` says how long it holds.
    pub(crate) async fn ask<F>(
        &self,
        key: Key,
        ttl: impl Fn(&V) -> Duration + Send + 'static,
        question: impl FnOnce() -> F,
    ) -> Answer<V>
    where
        F: Future<Output = Answer<V>> + Send + 'static,
    {
        if let Some(known) = self.shared.cache.get(&key) {
            self.shared.metrics.count(CacheOutcome::Hit);
            return Ok(known);
        }
        self.flight(key, ttl, question).await
    }

    /// Joins a question that is on its way, or sends it. Whoever waits drives it, so that it ends
    /// when nobody does.
    fn flight<F>(
        &self,
        key: Key,
        ttl: impl Fn(&V) -> Duration + Send + 'static,
        question: impl FnOnce() -> F,
    ) -> Shared<BoxFuture<'static, Answer<V>>>
    where
        F: Future<Output = Answer<V>> + Send + 'static,
    {
        let mut flights = self
            .shared
            .flights
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(flight) = flights.get(&key).and_then(WeakShared::upgrade) {
            self.shared.metrics.count(CacheOutcome::Joined);
            return flight;
        }
        self.shared.metrics.count(CacheOutcome::Miss);
        let inner = Arc::clone(&self.shared);
        let question = question();
        let flight = async move {
            let answer = inner.send(question).await;
            if let Ok(value) = &answer {
                inner.cache.put(key, value.clone(), ttl(value));
            }
            let mut flights = inner.flights.lock().unwrap_or_else(PoisonError::into_inner);
            flights.remove(&key);
            answer
        };
        let flight = flight.boxed().shared();
        if flights.len() >= MANY_FLIGHTS {
            flights.retain(|_, flight| flight.upgrade().is_some());
        }
        if let Some(weak) = flight.downgrade() {
            flights.insert(key, weak);
        }
        flight
    }
}

impl<V> Inner<V> {
    async fn send(&self, question: impl Future<Output = Answer<V>>) -> Answer<V> {
        // The semaphore is never closed.
        let _turn = self.turns.acquire().await;
        let started = tokio::time::Instant::now();
        let answer = question.await;
        self.metrics.observe(started.elapsed(), answer.is_ok());
        match &answer {
            Ok(_) => {
                if self.failing.swap(false, Ordering::Relaxed) {
                    tracing::info!(
                        review = self.metrics.kind(),
                        "the API server answers reviews again"
                    );
                }
            }
            Err(error) => {
                if !self.failing.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        review = self.metrics.kind(), %error,
                        "the API server does not answer reviews; requests that need one are refused"
                    );
                }
            }
        }
        answer
    }
}

/// Hashes texts, each with its length, so that no two lists of texts look alike.
pub(crate) struct KeyBuilder(aws_lc_rs::digest::Context);

impl KeyBuilder {
    pub(crate) fn new() -> Self {
        Self(aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256))
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.count(text.len());
        self.0.update(text.as_bytes());
    }

    pub(crate) fn count(&mut self, count: usize) {
        self.0.update(&(count as u64).to_be_bytes());
    }

    pub(crate) fn finish(self) -> Key {
        key_of(self.0.finish().as_ref())
    }
}

/// The first 32 bytes of a hash, which has as many.
pub(crate) fn key_of(hash: &[u8]) -> Key {
    let mut key = [0; 32];
    for (to, from) in key.iter_mut().zip(hash) {
        *to = *from;
    }
    key
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use tokio::sync::Notify;

    use super::*;

    fn reviews() -> Reviews<u32> {
        Reviews::new(crate::metrics::ApiServerMetrics::unregistered().token_reviews())
    }

    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "as the values of other reviews"
    )]
    fn forever(_: &u32) -> Duration {
        Duration::from_mins(1)
    }

    #[tokio::test]
    async fn equal_questions_are_asked_once() {
        let reviews = Arc::new(reviews());
        let (asked, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let ask = || {
            let (asked, go) = (Arc::clone(&asked), Arc::clone(&go));
            reviews.ask([1; 32], forever, move || {
                asked.fetch_add(1, Ordering::SeqCst);
                async move {
                    go.notified().await;
                    Ok(7)
                }
            })
        };
        let (a, b, c) = (ask(), ask(), ask());
        let all = async { tokio::join!(a, b, c) };
        let release = async {
            tokio::task::yield_now().await;
            go.notify_one();
        };
        let ((a, b, c), ()) = tokio::join!(all, release);
        assert_eq!((a.unwrap(), b.unwrap(), c.unwrap()), (7, 7, 7));
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        assert_eq!(ask().await.unwrap(), 7);
        assert_eq!(asked.load(Ordering::SeqCst), 1, "remembered");
    }

    #[tokio::test]
    async fn failures_are_not_remembered_and_the_lost_are_forgotten() {
        let reviews = reviews();
        let failed = || async {
            Err(ReviewError {
                what: "cannot ask",
                problem: String::from("down"),
            })
        };
        assert!(reviews.ask([1; 32], forever, failed).await.is_err());
        // Somebody who asked and left does not keep others from asking.
        let lost = reviews.ask([1; 32], forever, std::future::pending);
        assert!(lost.now_or_never().is_none());
        assert_eq!(
            reviews
                .ask([1; 32], forever, || async { Ok(3) })
                .await
                .unwrap(),
            3
        );
    }

    #[test]
    fn lists_of_texts_do_not_look_alike() {
        let key = |texts: &[&str]| {
            let mut builder = KeyBuilder::new();
            for text in texts {
                builder.text(text);
            }
            builder.finish()
        };
        assert_ne!(key(&["ab", "c"]), key(&["a", "bc"]));
        assert_ne!(key(&["", "a"]), key(&["a", ""]));
        assert_eq!(key(&["a", "b"]), key(&["a", "b"]));
    }
}
