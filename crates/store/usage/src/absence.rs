//! The reason why a pod or a node has no usage, as a message for clients.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{NoRate, NodeName, PodPhase};

/// The reason why a pod or a node has no usage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Absence {
    /// It has usage by now: a scrape succeeded since the request.
    Served,
    /// The API has not reported such a pod.
    PodUnknown,
    PodNotScheduled,
    /// Only running pods are served.
    PodNotRunning(PodPhase),
    /// There is no such node, or it is not selected.
    NodeUnknown(NodeName),
    NodeNotScraped(NodeName),
    /// The node is excluded from scraping.
    NodeExcluded {
        node: NodeName,
        reason: Arc<str>,
    },
    ScrapeFailed(NodeFailure),
    /// The last scrape succeeded, but did not contain it.
    NotReported {
        node: NodeName,
        scraped_ago: Duration,
    },
    /// There is one sample, and a rate needs two.
    FirstSample {
        /// `None` for a node.
        container: Option<Arc<str>>,
        /// The time since the sample was received.
        age: Duration,
        /// The time until the next sample; `None` if it is overdue.
        due_in: Option<Duration>,
    },
    /// No rate can be computed from the samples.
    NoRate {
        /// `None` for a node.
        container: Option<Arc<str>>,
        reason: NoRate,
        /// The time until the next sample; `None` if it is overdue.
        due_in: Option<Duration>,
    },
    /// The clock of the node jumped, so the time between the last two samples is unknown.
    ClockStepped {
        /// `None` for a node.
        container: Option<Arc<str>>,
        /// The time until the next sample; `None` if it is overdue.
        due_in: Option<Duration>,
    },
    /// There is CPU usage, but no memory.
    NoMemory {
        /// `None` for a node.
        container: Option<Arc<str>>,
    },
    /// There is memory, but no CPU usage.
    NoCpu {
        /// `None` for a node.
        container: Option<Arc<str>>,
    },
    /// The last usage is beyond the staleness limit.
    Stale {
        dropped_ago: Duration,
        failure: Option<NodeFailure>,
    },
}

/// The failure to scrape a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFailure {
    pub node: NodeName,
    /// The error of the last scrape.
    pub reason: Arc<str>,
    /// The time since the first of the failures in a row.
    pub failing_for: Duration,
    /// The time until the next attempt, if one is scheduled.
    pub retry_in: Option<Duration>,
}

/// Displays a duration in one unit, rounded down.
struct Seconds(Duration);

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Served => f.write_str("metrics have just become available, please try again"),
            Self::PodUnknown => f.write_str("pod not found"),
            Self::PodNotScheduled => f.write_str("pod is not scheduled to a node yet"),
            Self::PodNotRunning(phase) => {
                write!(
                    f,
                    "pod is {}, and only running pods have metrics",
                    phase.as_str()
                )
            }
            Self::NodeUnknown(node) => write!(f, "node {node} not found"),
            Self::NodeNotScraped(node) => write!(f, "node {node} has not been scraped yet"),
            Self::NodeExcluded { node, reason } => {
                write!(f, "node {node} is not scraped: {reason}")
            }
            Self::ScrapeFailed(failure) => failure.fmt(f),
            Self::NotReported { node, scraped_ago } => {
                let ago = Seconds(*scraped_ago);
                write!(f, "not reported by node {node}, last scraped {ago} ago")
            }
            Self::FirstSample {
                container,
                age,
                due_in,
            } => {
                write!(f, "{}first sample {} old", Prefix(container), Seconds(*age))?;
                match due_in {
                    Some(time) => write!(f, ", second due in {}", Seconds(*time)),
                    None => f.write_str(", second overdue"),
                }
            }
            Self::NoRate {
                container,
                reason,
                due_in,
            } => write!(f, "{}{reason}{}", Prefix(container), Next(*due_in)),
            Self::ClockStepped { container, due_in } => write!(
                f,
                "{}the clock of the node jumped{}",
                Prefix(container),
                Next(*due_in)
            ),
            Self::NoMemory { container } => {
                write!(f, "{}the node reports no memory", Prefix(container))
            }
            Self::NoCpu { container } => {
                write!(f, "{}the node reports no CPU time", Prefix(container))
            }
            Self::Stale {
                dropped_ago,
                failure,
            } => {
                write!(f, "last usage became stale {} ago", Seconds(*dropped_ago))?;
                failure
                    .iter()
                    .try_for_each(|failure| write!(f, "; {failure}"))
            }
        }
    }
}

impl fmt::Display for NodeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}: {}", self.node, self.reason)?;
        self.retry_in
            .iter()
            .try_for_each(|time| write!(f, " (next attempt in {})", Seconds(*time)))
    }
}

/// Displays `container app: `, or nothing for a node.
struct Prefix<'a>(&'a Option<Arc<str>>);

/// Displays when the next sample is due.
struct Next(Option<Duration>);

impl fmt::Display for Prefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|container| write!(f, "container {container}: "))
    }
}

impl fmt::Display for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(time) => write!(f, ", next sample due in {}", Seconds(time)),
            None => f.write_str(", next sample overdue"),
        }
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs() {
            seconds @ 0..120 => write!(f, "{seconds} s"),
            seconds @ 120..7_200 => write!(f, "{} min", seconds / 60),
            seconds => write!(f, "{} h", seconds / 3_600),
        }
    }
}
