//! The pool of buffers for responses: as many as there are responses in progress, not as many as
//! there are nodes.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use kubevitals_model::NodeBatch;
use kubevitals_tls::ReceiveBuffer;
use parking_lot::Mutex;

use crate::decode::Decoder;
use crate::http1::{Http1Error, ResponseReader};
use crate::memory::{Allowance, MemoryBudget, MemoryPlan, OutOfMemoryBudget};
use crate::permits::{Permit, Permits, Standing};

/// Maximum number of idle buffers. Where bodies arrive in one piece no more are in use at once than
/// there are threads; the first responses after a start arrive all at once, and their buffers would
/// otherwise be kept forever.
const MAX_IDLE: usize = 8;
/// The body of a usual node fits, so that one read receives it.
const RECEIVE_BUFFER: usize = 64 << 10;
/// Maximum number of bytes that one read adds to a body: the largest receive buffer.
const MAX_READ: usize = 80 << 10;
/// Capacity that an idle buffer keeps: of a body, and of a batch in containers and bytes of their
/// names.
const MAX_IDLE_BODY: usize = 256 << 10;
const MAX_IDLE_CONTAINERS: usize = 1_024;
const MAX_IDLE_NAMES: usize = 64 << 10;

/// A pool of [`ScrapeBuffers`]. The buffers that were returned last are reused first, so that few
/// are ever allocated.
#[derive(Clone)]
pub(crate) struct BufferPool(Arc<PoolInner>);

struct PoolInner {
    permits: Permits,
    memory: MemoryBudget,
    idle: Mutex<IdleBuffers>,
}

/// Boxed: the task of a node holds pooled buffers, and a pointer keeps it small.
type IdleBuffers = Vec<Box<ScrapeBuffers>>;

/// Buffers that return to their pool when dropped.
pub(crate) struct PooledBuffers {
    buffers: Option<Box<ScrapeBuffers>>,
    pool: Arc<PoolInner>,
    allowance: Allowance,
    _permit: Permit,
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
    /// The other body, while one is decompressed into the other.
    pub(crate) inflated: Vec<u8>,
    pub(crate) reader: ResponseReader,
    /// The error after which nothing more of the response is read.
    pub(crate) error: Option<Http1Error>,
}

impl BufferPool {
    pub(crate) fn new(plan: MemoryPlan) -> Self {
        Self(Arc::new(PoolInner {
            permits: Permits::new(plan.readers),
            memory: MemoryBudget::new(plan),
            idle: Mutex::new(Vec::new()),
        }))
    }

    /// Returns the maximum length of a body.
    pub(crate) fn max_body(&self) -> usize {
        self.0.memory.max_body()
    }

    /// Waits until buffers are available.
    pub(crate) async fn acquire(&self, standing: Standing) -> PooledBuffers {
        let permit = self.0.permits.acquire(standing).await;
        let buffers = self.0.idle.lock().pop().unwrap_or_default();
        PooledBuffers {
            buffers: Some(buffers),
            pool: Arc::clone(&self.0),
            allowance: Allowance::default(),
            _permit: permit,
        }
    }
}

#[cfg(test)]
impl BufferPool {
    /// Returns the number of responses that can be read besides those that are.
    pub(crate) fn available(&self) -> usize {
        self.0.permits.available()
    }
}

impl PooledBuffers {
    /// Makes room for the next read of a body. Waits for memory if the body is larger than usual.
    pub(crate) async fn reserve_read(&mut self) -> Result<(), OutOfMemoryBudget> {
        let response = &self.response;
        let stated = response.reader.stated_length().unwrap_or(0);
        let stated = usize::try_from(stated).unwrap_or(usize::MAX);
        let needed = response.body.len().saturating_add(MAX_READ).max(stated);
        let (allowed, asked) = if response.reader.is_gzip() {
            let asked = Allowance::for_compressed(needed);
            (self.allowance.compressed_length(), asked)
        } else {
            (self.allowance.length(), needed)
        };
        if needed > allowed {
            let Self {
                pool, allowance, ..
            } = self;
            pool.memory.extend(allowance, asked).await?;
        }
        let limit = if self.response.reader.is_gzip() {
            self.allowance.compressed_length()
        } else {
            self.allowance.length()
        };
        let body = &mut self.response.body;
        let length = body.len().saturating_add(MAX_READ);
        if body.capacity() < length {
            // Growth by doubling could exceed what is allowed.
            let wanted = body.len().saturating_mul(2).clamp(length.min(limit), limit);
            body.reserve_exact(wanted.saturating_sub(body.len()));
        }
        Ok(())
    }

    /// Makes room for a decompressed body. Waits for memory if it is larger than usual.
    pub(crate) async fn reserve_inflated(
        &mut self,
        length: usize,
    ) -> Result<(), OutOfMemoryBudget> {
        let Self {
            pool, allowance, ..
        } = self;
        pool.memory.extend(allowance, length).await
    }
}

impl ScrapeBuffers {
    /// Returns memory that only unusual responses need.
    fn trim(&mut self) {
        for body in [&mut self.response.body, &mut self.response.inflated] {
            body.clear();
            body.shrink_to(MAX_IDLE_BODY);
        }
        self.batch.clear();
        self.batch.shrink_to(MAX_IDLE_CONTAINERS, MAX_IDLE_NAMES);
        self.decoder.shrink_to(MAX_IDLE_CONTAINERS);
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
            inflated: Vec::new(),
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
            buffers.trim();
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
    use crate::decode::{DecodeOptions, decode};

    #[tokio::test]
    async fn a_burst_of_responses_leaves_few_idle_buffers() {
        let plan = MemoryPlan::new(256 << 20, 1 << 20, 64);
        assert_eq!(plan.readers, 64);
        let pool = BufferPool::new(plan);
        let mut acquired = Vec::new();
        for _ in 0..64 {
            acquired.push(pool.acquire(Standing::Good).await);
        }
        assert!(pool.0.idle.lock().is_empty());
        drop(acquired);
        assert_eq!(pool.0.idle.lock().len(), MAX_IDLE);
        let _again = pool.acquire(Standing::Good).await;
        assert_eq!(pool.0.idle.lock().len(), MAX_IDLE - 1);
    }

    /// A batch of 32 MiB once stayed allocated for as long as the process ran.
    #[tokio::test]
    async fn an_idle_buffer_keeps_little_of_a_large_response() {
        let plan = MemoryPlan::new(128 << 20, 16 << 20, 64);
        let pool = BufferPool::new(plan);
        let mut buffers = pool.acquire(Standing::Good).await;
        let lines = (0..10_000).map(|n| {
            format!("container_cpu_usage_seconds_total{{container=\"c{n}\",namespace=\"n\",pod=\"p{n}\"}} 1\n")
        });
        let body: String = lines.collect();
        let ScrapeBuffers {
            batch,
            decoder,
            response,
        } = &mut *buffers;
        let options = DecodeOptions {
            requested_at: kubevitals_model::Timestamp::from_unix_millis(1),
            is_complete: true,
            max_containers: 10_000,
        };
        assert_eq!(
            decode(body.as_bytes(), options, batch, decoder).used,
            10_000
        );
        response.body = vec![0; 16 << 20];
        response.inflated = vec![0; 16 << 20];
        assert!(batch.capacity() > 1 << 20);
        drop(buffers);
        let mut idle = pool.0.idle.lock();
        let idle = idle.pop().unwrap();
        assert!(
            idle.batch.capacity() < 512 << 10,
            "{}",
            idle.batch.capacity()
        );
        assert!(
            idle.decoder.capacity() < 4_096,
            "{}",
            idle.decoder.capacity()
        );
        let bodies = idle.response.body.capacity() + idle.response.inflated.capacity();
        assert!(bodies <= 512 << 10, "{bodies}");
    }
}
