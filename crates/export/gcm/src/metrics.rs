//! What became of points, beyond what the sink counts.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// The result of a point that the backend has, or may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PointResult {
    /// Written by this call.
    Sent,
    /// Written by an earlier attempt whose answer did not arrive.
    Duplicate,
    /// As many as are unknown failed, and the backend did not say which; or it was sent more than
    /// once, and one of the attempts may have written it.
    Unknown,
}

/// The reason why a point was not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// The backend found an error in the series.
    InvalidArgument,
    /// The backend has a later point of the series, or one with another start.
    OutOfOrder,
    /// The backend has a point of the series that is too near.
    TooFrequent,
    /// Another error that no further attempt changes.
    Other,
    /// Left out here: nearer to the point before than the pace allows.
    Paced,
    /// Left out here: older than the backend accepts.
    TooOld,
    /// Left out here: too many labels, or a name that is none.
    Labels,
    /// Left out here: a value that is not finite, or too many buckets.
    Value,
    /// Left out here: a cumulative value that does not end after its start.
    Interval,
}

/// The metrics of one exporter. Clones share them.
#[derive(Debug, Clone)]
pub struct GcmMetrics {
    points: Label,
    rejected: Label,
    calls: Label,
    descriptors: Label,
}

type Label = Family<[(&'static str, &'static str); 1], Counter>;

/// The result of a call, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallResult {
    Ok,
    /// Some series failed.
    Partial,
    /// Nothing was written, or nothing is known of it.
    Failed,
}

/// The result of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DescriptorResult {
    Created,
    Exists,
    Failed,
}

impl PointResult {
    pub const ALL: [Self; 3] = [Self::Sent, Self::Duplicate, Self::Unknown];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Duplicate => "duplicate",
            Self::Unknown => "unknown",
        }
    }
}

impl Code {
    pub const ALL: [Self; 9] = [
        Self::InvalidArgument,
        Self::OutOfOrder,
        Self::TooFrequent,
        Self::Other,
        Self::Paced,
        Self::TooOld,
        Self::Labels,
        Self::Value,
        Self::Interval,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid_argument",
            Self::OutOfOrder => "out_of_order",
            Self::TooFrequent => "too_frequent",
            Self::Other => "other",
            Self::Paced => "paced",
            Self::TooOld => "too_old",
            Self::Labels => "labels",
            Self::Value => "value",
            Self::Interval => "interval",
        }
    }
}

impl GcmMetrics {
    /// Registers the metrics in `registry`, whose prefix names the exporter.
    pub fn register(registry: &mut Registry) -> Self {
        let this = Self::unregistered();
        registry.register(
            "points",
            "Total number of points that Cloud Monitoring has, or may have, by result",
            this.points.clone(),
        );
        registry.register(
            "points_rejected",
            "Total number of points that were not written, by the reason",
            this.rejected.clone(),
        );
        registry.register(
            "calls",
            "Total number of calls that write points, by result",
            this.calls.clone(),
        );
        registry.register(
            "descriptors",
            "Total number of calls that describe a metric, by result",
            this.descriptors.clone(),
        );
        this
    }

    /// Metrics that are in no registry.
    pub fn unregistered() -> Self {
        let this = Self {
            points: Label::default(),
            rejected: Label::default(),
            calls: Label::default(),
            descriptors: Label::default(),
        };
        for result in PointResult::ALL {
            this.points(result);
        }
        for code in Code::ALL {
            this.rejected(code);
        }
        for result in [CallResult::Ok, CallResult::Partial, CallResult::Failed] {
            this.calls(result);
        }
        for result in [
            DescriptorResult::Created,
            DescriptorResult::Exists,
            DescriptorResult::Failed,
        ] {
            this.descriptors(result);
        }
        this
    }

    /// The counter of points with a result.
    pub fn points(&self, result: PointResult) -> Counter {
        of(&self.points, "result", result.as_str())
    }

    /// The counter of points that were rejected for a reason.
    pub fn rejected(&self, code: Code) -> Counter {
        of(&self.rejected, "code", code.as_str())
    }

    pub(crate) fn calls(&self, result: CallResult) -> Counter {
        let result = match result {
            CallResult::Ok => "ok",
            CallResult::Partial => "partial",
            CallResult::Failed => "failed",
        };
        of(&self.calls, "result", result)
    }

    pub(crate) fn descriptors(&self, result: DescriptorResult) -> Counter {
        let result = match result {
            DescriptorResult::Created => "created",
            DescriptorResult::Exists => "exists",
            DescriptorResult::Failed => "failed",
        };
        of(&self.descriptors, "result", result)
    }
}

fn of(family: &Label, name: &'static str, value: &'static str) -> Counter {
    family.get_or_create(&[(name, value)]).clone()
}
