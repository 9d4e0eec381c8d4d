//! A cache of reviews that coalesces equal requests and limits how many are sent at once.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use hashbrown::HashMap;
use kubevitals_telemetry::{OutageLog, OutagePart, RequestFailure};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::cache::TtlCache;
use crate::metrics::{CacheOutcome, ReviewMetrics};
use crate::rate_limit::{Rate, RateLimit};
use crate::reviewer::ReviewError;

/// Maximum number of cached results of one kind.
const MAX_CACHED: usize = 8192;
/// Maximum number of concurrent reviews of one kind.
const MAX_CONCURRENT: usize = 64;
/// Maximum number of reviews of one kind that wait for one of these.
const MAX_QUEUED: usize = 448;
/// The rate of reviews of one kind, as of Go's clients.
const REVIEW_RATE: Rate = Rate {
    per_second: 200,
    burst: 400,
};
const ANONYMOUS_REVIEW_RATE: Rate = Rate {
    per_second: 50,
    burst: 100,
};
/// Number of pending reviews at which canceled ones are removed.
const PENDING_CLEANUP_SIZE: usize = 1024;

type ReviewResult<V> = Result<V, ReviewFailure>;

/// A review without a result.
#[derive(Debug, Clone)]
pub(crate) enum ReviewFailure {
    /// The review failed.
    Failed(ReviewError),
    /// There are too many reviews: it was not sent.
    Limited,
}

/// The clients that reviews are on behalf of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// Users who are authenticated, or about to be.
    Authenticated,
    /// Anybody. They get a share, so that they cannot use up the reviews of users.
    Anonymous,
}

/// A hash of the whole review, so that no secret is kept and every entry is small.
pub(crate) type Key = [u8; 32];

/// Reviews of one kind, cached by their hash.
pub(crate) struct ReviewCache<V> {
    inner: Arc<Inner<V>>,
}

struct Inner<V> {
    cache: TtlCache<Key, V>,
    pending: Mutex<HashMap<Key, WeakShared<BoxFuture<'static, ReviewResult<V>>>>>,
    permits: Semaphore,
    queue: Semaphore,
    rate: RateLimit,
    anonymous_rate: RateLimit,
    outage: Mutex<OutagePart>,
    metrics: ReviewMetrics,
}

impl<V: Clone + Send + Sync + 'static> ReviewCache<V> {
    pub(crate) fn new(metrics: ReviewMetrics, outage: &OutageLog) -> Self {
        Self {
            inner: Arc::new(Inner {
                cache: TtlCache::new(MAX_CACHED),
                pending: Mutex::new(HashMap::new()),
                permits: Semaphore::new(MAX_CONCURRENT),
                queue: Semaphore::new(MAX_CONCURRENT + MAX_QUEUED),
                rate: RateLimit::new(REVIEW_RATE),
                anonymous_rate: RateLimit::new(ANONYMOUS_REVIEW_RATE),
                outage: Mutex::new(outage.occasional(metrics.kind())),
                metrics,
            }),
        }
    }

    /// Returns the cached result.
    pub(crate) fn cached(&self, key: &Key) -> Option<V> {
        self.inner.cache.get(key)
    }

    /// Returns the cached result, or sends the review; `ttl` is the lifetime of its result.
    pub(crate) async fn get<F>(
        &self,
        key: Key,
        source: Source,
        ttl: impl Fn(&V) -> Duration + Send + 'static,
        review: impl FnOnce() -> F,
    ) -> ReviewResult<V>
    where
        F: Future<Output = Result<V, ReviewError>> + Send + 'static,
    {
        if let Some(cached) = self.inner.cache.get(&key) {
            self.inner.metrics.count(CacheOutcome::Hit);
            return Ok(cached);
        }
        self.join_or_send(key, source, ttl, review).await
    }

    /// Joins an equal review in flight, or sends the review. Its callers drive it, so that it is
    /// canceled with the last of them.
    fn join_or_send<F>(
        &self,
        key: Key,
        source: Source,
        ttl: impl Fn(&V) -> Duration + Send + 'static,
        review: impl FnOnce() -> F,
    ) -> Shared<BoxFuture<'static, ReviewResult<V>>>
    where
        F: Future<Output = Result<V, ReviewError>> + Send + 'static,
    {
        let mut pending = self.inner.pending.lock();
        if let Some(joined) = pending.get(&key).and_then(WeakShared::upgrade) {
            self.inner.metrics.count(CacheOutcome::Joined);
            return joined;
        }
        self.inner.metrics.count(CacheOutcome::Miss);
        let inner = Arc::clone(&self.inner);
        let review = review();
        let sent = async move {
            let result = inner.send(source, review).await;
            if let Ok(value) = &result {
                inner.cache.put(key, value.clone(), ttl(value));
            }
            inner.pending.lock().remove(&key);
            result
        };
        let sent = sent.boxed().shared();
        if pending.len() >= PENDING_CLEANUP_SIZE {
            pending.retain(|_, review| review.upgrade().is_some());
        }
        if let Some(weak) = sent.downgrade() {
            pending.insert(key, weak);
        }
        sent
    }
}

impl<V> Inner<V> {
    async fn send(
        &self,
        source: Source,
        review: impl Future<Output = Result<V, ReviewError>>,
    ) -> ReviewResult<V> {
        let limited = || {
            self.metrics.count(CacheOutcome::Limited);
            ReviewFailure::Limited
        };
        let _place = self.queue.try_acquire().map_err(|_| limited())?;
        if source == Source::Anonymous {
            self.anonymous_rate.acquire().await.ok_or_else(limited)?;
        }
        self.rate.acquire().await.ok_or_else(limited)?;
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await;
        let started = tokio::time::Instant::now();
        let result = review.await;
        self.metrics.observe(started.elapsed(), result.is_ok());
        match &result {
            Ok(_) => {
                if self.outage.lock().succeeded() {
                    tracing::info!(review = self.metrics.kind(), "reviews succeed again");
                }
            }
            Err(error) => {
                // A review may wait for a webhook.
                let failure = if error.is_timeout() {
                    RequestFailure::Other
                } else {
                    error.failure()
                };
                if self.outage.lock().failed(failure, error) {
                    tracing::warn!(
                        review = self.metrics.kind(), %error,
                        "review failed, rejecting requests that need one"
                    );
                }
            }
        }
        result.map_err(ReviewFailure::Failed)
    }
}

/// Hashes strings, each with its length, so that different lists have different hashes.
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

/// Copies a hash of 32 bytes.
pub(crate) fn key_of(hash: &[u8]) -> Key {
    let mut key = [0; 32];
    for (to, from) in key.iter_mut().zip(hash) {
        *to = *from;
    }
    key
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Notify;

    use super::*;

    fn cache() -> ReviewCache<u32> {
        let metrics = crate::metrics::AccessMetrics::unregistered();
        ReviewCache::new(metrics.token_reviews(), &OutageLog::default())
    }

    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "as the results of other reviews"
    )]
    fn forever(_: &u32) -> Duration {
        Duration::from_mins(1)
    }

    #[tokio::test]
    async fn equal_reviews_are_sent_once() {
        let cache = Arc::new(cache());
        let (sent_count, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let get = || {
            let (sent_count, go) = (Arc::clone(&sent_count), Arc::clone(&go));
            cache.get([1; 32], Source::Authenticated, forever, move || {
                sent_count.fetch_add(1, Ordering::SeqCst);
                async move {
                    go.notified().await;
                    Ok(7)
                }
            })
        };
        let (a, b, c) = (get(), get(), get());
        let all = async { tokio::join!(a, b, c) };
        let release = async {
            tokio::task::yield_now().await;
            go.notify_one();
        };
        let ((a, b, c), ()) = tokio::join!(all, release);
        assert_eq!((a.unwrap(), b.unwrap(), c.unwrap()), (7, 7, 7));
        assert_eq!(sent_count.load(Ordering::SeqCst), 1);
        assert_eq!(get().await.unwrap(), 7);
        assert_eq!(sent_count.load(Ordering::SeqCst), 1, "cached");
    }

    #[tokio::test]
    async fn errors_are_not_cached_and_canceled_reviews_are_forgotten() {
        let cache = cache();
        let source = Source::Authenticated;
        let failed = || async { Err(ReviewError::new("cannot review", "down")) };
        assert!(cache.get([1; 32], source, forever, failed).await.is_err());
        // A canceled review does not block the next one.
        let lost = cache.get([1; 32], source, forever, std::future::pending);
        assert!(lost.now_or_never().is_none());
        assert_eq!(
            cache
                .get([1; 32], source, forever, || async { Ok(3) })
                .await
                .unwrap(),
            3
        );
    }

    fn key(number: u32) -> Key {
        let mut builder = KeyBuilder::new();
        builder.text(&number.to_string());
        builder.finish()
    }

    /// Sends reviews of different keys at once, and returns how many were sent.
    async fn storm(cache: &ReviewCache<u32>, source: Source, keys: std::ops::Range<u32>) -> usize {
        let reviews =
            keys.map(|number| cache.get(key(number), source, forever, || async { Ok(1) }));
        let results = futures_util::future::join_all(reviews).await;
        for result in &results {
            assert!(matches!(result, Ok(1) | Err(ReviewFailure::Limited)));
        }
        results.iter().filter(|result| result.is_ok()).count()
    }

    /// Random tokens of anonymous clients used to become as many requests to the API server.
    #[tokio::test(start_paused = true)]
    async fn a_storm_of_reviews_is_limited() {
        let cache = cache();
        let sent = storm(&cache, Source::Authenticated, 0..5_000).await;
        assert!((400..=512).contains(&sent), "{sent}");
        // Cached results need no review.
        assert_eq!(storm(&cache, Source::Authenticated, 0..100).await, 100);
        tokio::time::advance(Duration::from_secs(1)).await;
        let sent = storm(&cache, Source::Authenticated, 5_000..10_000).await;
        assert!((200..=512).contains(&sent), "{sent}");
    }

    #[tokio::test(start_paused = true)]
    async fn anonymous_clients_cannot_use_up_the_reviews_of_users() {
        let cache = cache();
        let sent = storm(&cache, Source::Anonymous, 0..5_000).await;
        assert!((100..=150).contains(&sent), "{sent}");
        assert_eq!(
            storm(&cache, Source::Authenticated, 10_000..10_200).await,
            200
        );
    }

    #[tokio::test(start_paused = true)]
    async fn reviews_that_get_no_response_queue_up_to_a_limit() {
        let cache = cache();
        let mut waiting = Vec::new();
        let mut limited = 0;
        for number in 0..2_000 {
            // Within the rate.
            tokio::time::advance(Duration::from_millis(5)).await;
            let review = cache.get(
                key(number),
                Source::Authenticated,
                forever,
                std::future::pending,
            );
            let mut review = Box::pin(review);
            match (&mut review).now_or_never() {
                None => waiting.push(review),
                Some(result) => {
                    assert!(matches!(result, Err(ReviewFailure::Limited)));
                    limited += 1;
                }
            }
        }
        assert_eq!(waiting.len(), MAX_CONCURRENT + MAX_QUEUED);
        assert_eq!(limited, 2_000 - waiting.len());
    }

    #[test]
    fn different_lists_have_different_keys() {
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
