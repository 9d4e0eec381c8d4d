use std::fmt;
use std::time::Duration;

/// An item of a queue: one record, or several that belong together.
pub trait SinkItem: Send + Sync + 'static {
    /// The size that counts against the capacity and the batch size.
    fn size(&self) -> usize {
        1
    }

    /// The number of records that the item stands for in metrics.
    fn records(&self) -> u64 {
        1
    }
}

/// Sends batches to a backend.
pub trait Exporter<T>: Send {
    /// Exports a batch. After [`ExportError::Retryable`] the same batch is exported again, after
    /// [`ExportError::Partial`] the part of it that is named, before any other. The future may be
    /// dropped at shutdown, after the grace period.
    fn export(&mut self, batch: &[T]) -> impl Future<Output = Result<(), ExportError>> + Send;
}

/// The failure of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExportError {
    /// The backend may accept the whole batch later.
    Retryable {
        message: String,
        /// The delay that the backend asks for, such as `Retry-After`; `None` for back-off.
        after: Option<Duration>,
    },
    /// The backend may accept some items later. It is done with the others, of which it rejected
    /// some records.
    Partial {
        message: String,
        /// As in [`Retryable`](Self::Retryable).
        after: Option<Duration>,
        /// The positions in the batch of the items to export again, in ascending order.
        retry: Vec<usize>,
        rejected: u64,
    },
    /// The backend rejected some records, and accepted the rest of the batch.
    Rejected { message: String, records: u64 },
    /// As [`Rejected`](Self::Rejected), and the backend will not accept anything any more.
    Closed { message: String, records: u64 },
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Partial {
                message,
                rejected: records @ 1..,
                ..
            }
            | Self::Rejected { message, records } => {
                write!(f, "{records} records rejected: {message}")
            }
            Self::Retryable { message, .. } | Self::Partial { message, .. } => f.write_str(message),
            Self::Closed { message, .. } => write!(f, "closed: {message}"),
        }
    }
}

impl std::error::Error for ExportError {}
