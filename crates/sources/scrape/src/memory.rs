//! The memory that responses may take, all together.
//!
//! Nodes are untrusted, and all of them may send the largest body at once. Responses of the usual
//! size need no more than the buffers of the pool. A larger one takes a place among few, of a size
//! that is known before it is read: a response never waits for memory that another one holds while
//! it waits for more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

const MIB: usize = 1 << 20;

/// Length of a body that needs no place: several times that of a node with 110 pods.
pub(crate) const SMALL_BODY: usize = 256 << 10;
/// Length of a body in a medium place: `/stats/summary` of the largest nodes.
const MEDIUM_BODY: usize = 4 * MIB;
/// Maximum number of responses that are read at once. The processor needs fewer, but some kubelets
/// begin to respond and then take their time.
const MAX_READERS: usize = 64;
/// Upper bound of what reading and decoding a small body takes: the receive buffer, the body before
/// and after decompression, and the batch.
const READER: usize = 3 * MIB / 2;
/// Upper bound of what decoding any body takes: the limits of containers and of their names.
const DECODED: usize = 8 * MIB;
/// A compressed body that is not small may have this part of the length that is allowed after
/// decompression.
const COMPRESSED: usize = 4;
const MEDIUM: usize = place(MEDIUM_BODY);
/// Minimum limit.
pub(crate) const MIN_LIMIT: usize = 64 * MIB;

/// How a limit is divided: one half for readers, the other for places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryPlan {
    /// Maximum number of responses that are read at once.
    pub(crate) readers: usize,
    /// Maximum length of a body.
    pub(crate) max_body: usize,
    /// Number of medium places. There is one large place.
    medium: usize,
}

/// Places for bodies that are larger than usual.
pub(crate) struct MemoryBudget {
    plan: MemoryPlan,
    medium: Arc<Semaphore>,
    large: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// The memory that one response may take.
#[derive(Default)]
pub(crate) struct Allowance {
    _place: Option<OwnedSemaphorePermit>,
    /// Maximum length of the body, if it is larger than a small one.
    length: usize,
}

/// Too many responses wait for a place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OutOfMemoryBudget;

/// Counts a waiting response until dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl MemoryPlan {
    pub(crate) fn new(limit: usize, max_body: usize, concurrency: usize) -> Self {
        let half = limit.max(MIN_LIMIT) / 2;
        let largest = (half - MEDIUM - DECODED) / (COMPRESSED + 1) * COMPRESSED;
        let max_body = max_body.min(largest);
        Self {
            readers: (half / READER).min(MAX_READERS).min(concurrency).max(1),
            max_body,
            medium: (half - place(max_body)) / MEDIUM,
        }
    }
}

/// Returns what a body of a length takes, with its compressed form.
const fn place(body: usize) -> usize {
    body + body / COMPRESSED + DECODED
}

impl MemoryBudget {
    pub(crate) fn new(plan: MemoryPlan) -> Self {
        Self {
            plan,
            medium: Arc::new(Semaphore::new(plan.medium)),
            large: Arc::new(Semaphore::new(1)),
            waiting: AtomicUsize::new(0),
        }
    }

    pub(crate) fn max_body(&self) -> usize {
        self.plan.max_body
    }

    /// Allows a body of `length` bytes, and possibly more. Waits for a place if needed, unless half
    /// of the readers wait already: the others must be free for usual responses.
    pub(crate) async fn extend(
        &self,
        allowance: &mut Allowance,
        length: usize,
    ) -> Result<(), OutOfMemoryBudget> {
        let length = length.min(self.plan.max_body);
        if length <= allowance.length() {
            return Ok(());
        }
        let (places, granted) = if length <= MEDIUM_BODY {
            (&self.medium, MEDIUM_BODY.min(self.plan.max_body))
        } else {
            (&self.large, self.plan.max_body)
        };
        let place = if let Ok(place) = Arc::clone(places).try_acquire_owned() {
            Some(place)
        } else {
            let _waiting = self.wait()?;
            // The semaphore is never closed. A holder of a medium place may wait for the large one,
            // whose holder waits for none.
            Arc::clone(places).acquire_owned().await.ok()
        };
        *allowance = Allowance {
            _place: place,
            length: granted,
        };
        Ok(())
    }

    fn wait(&self) -> Result<Waiting<'_>, OutOfMemoryBudget> {
        let waiting = Waiting(&self.waiting);
        let others = self.waiting.fetch_add(1, Ordering::Relaxed);
        if others >= self.plan.readers / 2 {
            return Err(OutOfMemoryBudget);
        }
        Ok(waiting)
    }
}

impl Allowance {
    /// Returns the maximum length of the body.
    pub(crate) fn length(&self) -> usize {
        self.length.max(SMALL_BODY)
    }

    /// Returns the maximum length of the body if it is compressed.
    pub(crate) fn compressed_length(&self) -> usize {
        Self::max_compressed(self.length)
    }

    /// Returns the maximum length of a compressed body where `length` bytes are allowed after
    /// decompression.
    pub(crate) fn max_compressed(length: usize) -> usize {
        (length / COMPRESSED).max(SMALL_BODY)
    }

    /// Returns the length to ask for if a compressed body gets this long.
    pub(crate) const fn for_compressed(length: usize) -> usize {
        length.saturating_mul(COMPRESSED)
    }
}

#[cfg(test)]
impl Allowance {
    fn is_extended(&self) -> bool {
        self.length > 0
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    /// The most that a plan allows to be in use.
    fn total(plan: MemoryPlan) -> usize {
        plan.readers * READER + plan.medium * MEDIUM + place(plan.max_body)
    }

    #[test]
    fn a_plan_stays_within_its_limit() {
        let default = MemoryPlan::new(128 * MIB, 16 * MIB, 1_024);
        assert_eq!(
            (default.readers, default.max_body, default.medium),
            (42, 16 * MIB, 2)
        );
        for limit in [64, 65, 100, 128, 1_000, 100_000] {
            for max_body in [1, MIB, 32 * MIB, 1_000 * MIB] {
                let plan = MemoryPlan::new(limit * MIB, max_body, 1_024);
                assert!(total(plan) <= limit * MIB, "{plan:?}");
                assert!(plan.readers >= 21 && plan.medium >= 1, "{plan:?}");
                assert!(
                    plan.max_body == max_body || plan.max_body >= 8 * MIB,
                    "{plan:?}"
                );
            }
        }
    }

    #[tokio::test]
    async fn large_bodies_wait_for_each_other_and_small_ones_do_not() {
        let budget = MemoryBudget::new(MemoryPlan::new(128 * MIB, 16 * MIB, 8));
        let extend = async |length| {
            let mut allowance = Allowance::default();
            budget.extend(&mut allowance, length).await?;
            Ok::<_, OutOfMemoryBudget>(allowance)
        };
        let first = extend(5 * MIB).await.unwrap();
        assert_eq!(first.length(), 16 * MIB);
        let mut second = Box::pin(extend(5 * MIB));
        assert!((&mut second).now_or_never().is_none());
        for _ in 0..100 {
            let small = extend(SMALL_BODY).await.unwrap();
            assert!(!small.is_extended());
        }
        let medium = [extend(MIB).await.unwrap(), extend(MIB).await.unwrap()];
        assert!(medium.iter().all(|medium| medium.length() == MEDIUM_BODY));
        drop(first);
        assert!(second.await.unwrap().is_extended());
    }

    /// A response that grows holds its medium place while it waits for the large one.
    #[tokio::test]
    async fn responses_that_grow_at_once_all_finish() {
        let budget = MemoryBudget::new(MemoryPlan::new(128 * MIB, 16 * MIB, 64));
        let grow = async || {
            let mut allowance = Allowance::default();
            for length in [MIB, 5 * MIB, 16 * MIB] {
                budget.extend(&mut allowance, length).await.unwrap();
                tokio::task::yield_now().await;
            }
        };
        tokio::join!(grow(), grow(), grow(), grow(), grow());
        assert_eq!(budget.medium.available_permits(), budget.plan.medium);
        assert_eq!(budget.large.available_permits(), 1);
    }

    #[tokio::test]
    async fn at_most_half_of_the_readers_wait() {
        let budget = MemoryBudget::new(MemoryPlan::new(128 * MIB, 16 * MIB, 4));
        let extend = async || {
            let mut allowance = Allowance::default();
            budget.extend(&mut allowance, 5 * MIB).await?;
            Ok::<_, OutOfMemoryBudget>(allowance)
        };
        let first = extend().await.unwrap();
        let (mut second, mut third) = (Box::pin(extend()), Box::pin(extend()));
        assert!((&mut second).now_or_never().is_none());
        assert!((&mut third).now_or_never().is_none());
        assert_eq!(extend().await.err(), Some(OutOfMemoryBudget));
        drop(third);
        assert!(Box::pin(extend()).now_or_never().is_none());
        drop(first);
        assert!(second.await.is_ok());
    }
}
