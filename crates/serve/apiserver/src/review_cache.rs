//! A cache of reviews that coalesces equal requests and limits how many are sent at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::cache::TtlCache;
use crate::metrics::{CacheOutcome, ReviewMetrics};
use crate::reviewer::ReviewError;

/// Maximum number of cached results of one kind.
const MAX_CACHED: usize = 8192;
/// Maximum number of concurrent reviews of one kind.
const MAX_CONCURRENT: usize = 64;
/// Number of pending reviews at which canceled ones are removed.
const PENDING_CLEANUP_SIZE: usize = 1024;

type ReviewResult<V> = Result<V, ReviewError>;

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
    failing: AtomicBool,
    metrics: ReviewMetrics,
}

impl<V: Clone + Send + Sync + 'static> ReviewCache<V> {
    pub(crate) fn new(metrics: ReviewMetrics) -> Self {
        Self {
            inner: Arc::new(Inner {
                cache: TtlCache::new(MAX_CACHED),
                pending: Mutex::new(HashMap::new()),
                permits: Semaphore::new(MAX_CONCURRENT),
                failing: AtomicBool::new(false),
                metrics,
            }),
        }
    }

    /// Returns the cached result, or sends the review; `ttl` is the lifetime of its result.
    pub(crate) async fn get<F>(
        &self,
        key: Key,
        ttl: impl Fn(&V) -> Duration + Send + 'static,
        review: impl FnOnce() -> F,
    ) -> ReviewResult<V>
    where
        F: Future<Output = ReviewResult<V>> + Send + 'static,
    {
        if let Some(cached) = self.inner.cache.get(&key) {
            self.inner.metrics.count(CacheOutcome::Hit);
            return Ok(cached);
        }
        self.join_or_send(key, ttl, review).await
    }

    /// Joins an equal review in flight, or sends the review. Its callers drive it, so that it is
    /// canceled with the last of them.
    fn join_or_send<F>(
        &self,
        key: Key,
        ttl: impl Fn(&V) -> Duration + Send + 'static,
        review: impl FnOnce() -> F,
    ) -> Shared<BoxFuture<'static, ReviewResult<V>>>
    where
        F: Future<Output = ReviewResult<V>> + Send + 'static,
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
            let result = inner.send(review).await;
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
    async fn send(&self, review: impl Future<Output = ReviewResult<V>>) -> ReviewResult<V> {
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await;
        let started = tokio::time::Instant::now();
        let result = review.await;
        self.metrics.observe(started.elapsed(), result.is_ok());
        match &result {
            Ok(_) => {
                if self.failing.swap(false, Ordering::Relaxed) {
                    tracing::info!(review = self.metrics.kind(), "reviews succeed again");
                }
            }
            Err(error) => {
                if !self.failing.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        review = self.metrics.kind(), %error,
                        "review failed, rejecting requests that need one"
                    );
                }
            }
        }
        result
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
    use std::sync::atomic::AtomicUsize;

    use tokio::sync::Notify;

    use super::*;

    fn cache() -> ReviewCache<u32> {
        ReviewCache::new(crate::metrics::ApiServerMetrics::unregistered().token_reviews())
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
            cache.get([1; 32], forever, move || {
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
        let failed = || async { Err(ReviewError::new("cannot review", "down")) };
        assert!(cache.get([1; 32], forever, failed).await.is_err());
        // A canceled review does not block the next one.
        let lost = cache.get([1; 32], forever, std::future::pending);
        assert!(lost.now_or_never().is_none());
        assert_eq!(
            cache
                .get([1; 32], forever, || async { Ok(3) })
                .await
                .unwrap(),
            3
        );
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
