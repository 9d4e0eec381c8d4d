use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The reason why a record was not exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// The queue had no room.
    QueueFull,
    /// The backend rejected it, or is closed.
    Rejected,
    /// It could not be exported within [`RetryPolicy::max_elapsed`](crate::RetryPolicy).
    RetriesExhausted,
    /// It was not exported before the end of the grace period, or came after shutdown.
    Shutdown,
}

/// The metrics of one sink. Clones share them.
#[derive(Debug, Clone)]
pub struct SinkMetrics {
    exported: Counter,
    retries: Counter,
    queued: Gauge,
    dropped: Family<[(&'static str, &'static str); 1], Counter>,
}

impl DropReason {
    pub const ALL: [Self; 4] = [
        Self::QueueFull,
        Self::Rejected,
        Self::RetriesExhausted,
        Self::Shutdown,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::Rejected => "rejected",
            Self::RetriesExhausted => "retries_exhausted",
            Self::Shutdown => "shutdown",
        }
    }
}

impl SinkMetrics {
    /// Registers the metrics in `registry`, whose prefix names the sink.
    pub fn register(registry: &mut Registry) -> Self {
        let this = Self::unregistered();
        registry.register(
            "exported",
            "Total number of exported records",
            this.exported.clone(),
        );
        registry.register(
            "dropped",
            "Total number of records dropped without being exported, by reason",
            this.dropped.clone(),
        );
        registry.register(
            "retries",
            "Total number of times a batch was exported again",
            this.retries.clone(),
        );
        registry.register(
            "queued",
            "Number of records that are queued or in flight",
            this.queued.clone(),
        );
        this
    }

    /// Metrics that are in no registry.
    pub fn unregistered() -> Self {
        let this = Self {
            exported: Counter::default(),
            retries: Counter::default(),
            queued: Gauge::default(),
            dropped: Family::default(),
        };
        for reason in DropReason::ALL {
            this.dropped(reason);
        }
        this
    }

    /// The counter of exported records.
    pub fn exported(&self) -> &Counter {
        &self.exported
    }

    /// The counter of retries.
    pub fn retries(&self) -> &Counter {
        &self.retries
    }

    /// The gauge of records that are queued or in flight.
    pub fn queued(&self) -> &Gauge {
        &self.queued
    }

    /// The counter of records dropped for a reason.
    pub fn dropped(&self, reason: DropReason) -> Counter {
        let series = self.dropped.get_or_create(&[("reason", reason.as_str())]);
        series.clone()
    }
}
