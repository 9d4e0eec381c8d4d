//! The pool of buffers for responses: as many as there are responses in progress, not as many as
//! there are nodes.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use kubevitals_model::NodeBatch;
use kubevitals_tls::ReceiveBuffer;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::decode::Decoder;
use crate::http1::{Http1Error, ResponseReader};

/// Maximum number of idle buffers. Where bodies arrive in one piece no more are in use at once than
/// there are threads; the first responses after a start arrive all at once, and their buffers would
/// otherwise be kept forever.
const MAX_IDLE: usize = 8;
/// The body of a usual node fits, so that one read receives it.
const RECEIVE_BUFFER: usize = 64 << 10;
/// Capacity of a body that an idle buffer keeps.
const MAX_IDLE_BODY: usize = 512 << 10;

/// A pool of [`ScrapeBuffers`]. The buffers that were returned last are reused first, so that few
/// are ever allocated.
#[derive(Clone)]
pub(crate) struct BufferPool(Arc<PoolInner>);

struct PoolInner {
    permits: Arc<Semaphore>,
    idle: Mutex<IdleBuffers>,
}

/// Boxed: the task of a node holds pooled buffers, and a pointer keeps it small.
type IdleBuffers = Vec<Box<ScrapeBuffers>>;

/// Buffers that return to their pool when dropped.
pub(crate) struct PooledBuffers {
    buffers: Option<Box<ScrapeBuffers>>,
    pool: Arc<PoolInner>,
    _permit: Option<OwnedSemaphorePermit>,
}

/// Buffers of one in-flight scrape.
#[derive(Default)]
pub(crate) struct ScrapeBuffers {
    pub(crate) response: ResponseBuffers,
    pub(crate) batch: NodeBatch,
    pub(crate) decoder: Decoder,
}

/// A response while it is read.
pub(crate) struct ResponseBuffers {
    pub(crate) received: ReceiveBuffer,
    pub(crate) body: Vec<u8>,
    pub(crate) reader: ResponseReader,
    /// The error after which nothing more of the response is read.
    pub(crate) error: Option<Http1Error>,
}

impl BufferPool {
    pub(crate) fn new(size: usize) -> Self {
        Self(Arc::new(PoolInner {
            permits: Arc::new(Semaphore::new(size.min(Semaphore::MAX_PERMITS))),
            idle: Mutex::new(Vec::new()),
        }))
    }

    /// Waits until buffers are available.
    pub(crate) async fn acquire(&self) -> PooledBuffers {
        // The semaphore is never closed.
        let permit = Arc::clone(&self.0.permits).acquire_owned().await.ok();
        let buffers = self.0.idle.lock().pop().unwrap_or_default();
        PooledBuffers {
            buffers: Some(buffers),
            pool: Arc::clone(&self.0),
            _permit: permit,
        }
    }
}

impl ResponseBuffers {
    /// Prepares for a response whose body has at most `max_body` bytes.
    pub(crate) fn start(&mut self, max_body: usize) {
        self.received.clear();
        self.body.clear();
        self.reader.start(max_body);
        self.error = None;
    }

    /// Returns whether all received bytes are processed. Unless the response has begun, other
    /// scrapes can then use the buffers.
    pub(crate) fn is_drained(&self) -> bool {
        self.received.is_empty()
    }
}

impl Default for ResponseBuffers {
    fn default() -> Self {
        Self {
            received: ReceiveBuffer::new(RECEIVE_BUFFER),
            body: Vec::new(),
            reader: ResponseReader::new(),
            error: None,
        }
    }
}

impl Deref for PooledBuffers {
    type Target = ScrapeBuffers;

    fn deref(&self) -> &ScrapeBuffers {
        self.buffers.as_ref().expect("present until dropped")
    }
}

impl DerefMut for PooledBuffers {
    fn deref_mut(&mut self) -> &mut ScrapeBuffers {
        self.buffers.as_mut().expect("present until dropped")
    }
}

impl Drop for PooledBuffers {
    fn drop(&mut self) {
        if let Some(mut buffers) = self.buffers.take() {
            let body = &mut buffers.response.body;
            body.clear();
            body.shrink_to(MAX_IDLE_BODY);
            let mut idle = self.pool.idle.lock();
            if idle.len() < MAX_IDLE {
                idle.push(buffers);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_burst_of_responses_leaves_few_idle_buffers() {
        let pool = BufferPool::new(64);
        let mut acquired = Vec::new();
        for _ in 0..64 {
            acquired.push(pool.acquire().await);
        }
        assert!(pool.0.idle.lock().is_empty());
        drop(acquired);
        assert_eq!(pool.0.idle.lock().len(), MAX_IDLE);
        let _again = pool.acquire().await;
        assert_eq!(pool.0.idle.lock().len(), MAX_IDLE - 1);
    }
}
