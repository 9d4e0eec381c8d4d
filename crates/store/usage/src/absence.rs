//! Why nothing is served, as a sentence for who asked.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{NoRate, NodeName, PodPhase};

/// Why there is no usage of a pod or of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Absence {
    /// There is some: it came between the question and this answer.
    Served,
    /// No such pod is known.
    PodUnknown,
    /// The pod is not bound to a node yet.
    PodNotScheduled,
    /// The pod does not run; only running pods are served.
    PodNotRunning(PodPhase),
    /// No such node is known, or none that is to be asked.
    NodeUnknown(NodeName),
    /// The node was not asked yet.
    NodeNotAsked(NodeName),
    /// The node does not answer, or not as it should.
    NodeFails(NodeFailure),
    /// The node answers, but has said nothing of it.
    NotReported {
        /// Which node.
        node: NodeName,
        /// How long ago it last answered.
        answered_ago: Duration,
    },
    /// One sample is there, and a rate needs two.
    FirstSample {
        /// Of which container; none for a node.
        container: Option<Arc<str>>,
        /// How long ago the sample was received.
        age: Duration,
        /// When the next is due; none if it is overdue.
        due_in: Option<Duration>,
    },
    /// The samples that are there make no rate.
    NoRate {
        /// Of which container; none for a node.
        container: Option<Arc<str>>,
        /// Why not.
        why: NoRate,
        /// When the next sample is due; none if it is overdue.
        due_in: Option<Duration>,
    },
    /// The clock of the node jumped, so that the time between the last two samples is not known.
    ClockStepped {
        /// Of which container; none for a node.
        container: Option<Arc<str>>,
        /// When the next sample is due; none if it is overdue.
        due_in: Option<Duration>,
    },
    /// CPU is known, memory is not.
    NoMemory {
        /// Of which container; none for a node.
        container: Option<Arc<str>>,
    },
    /// Memory is known, CPU is not.
    NoCpu {
        /// Of which container; none for a node.
        container: Option<Arc<str>>,
    },
    /// The last value became too old.
    Stale {
        /// How long ago it was dropped.
        dropped_ago: Duration,
        /// What is wrong with the node, if something is.
        failure: Option<NodeFailure>,
    },
}

/// What is wrong with a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFailure {
    /// Which node.
    pub node: NodeName,
    /// What went wrong, in the words of the scraper.
    pub why: Arc<str>,
    /// Since when nothing else came of asking it.
    pub failing_for: Duration,
    /// In how long it is asked again, where that is known and not past.
    pub retry_in: Option<Duration>,
}

/// A span of time in whole seconds, as people say it.
struct Seconds(Duration);

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Served => f.write_str("metrics have just arrived; ask again"),
            Self::PodUnknown => f.write_str("pod is not known"),
            Self::PodNotScheduled => f.write_str("pod is not scheduled to a node yet"),
            Self::PodNotRunning(phase) => {
                write!(
                    f,
                    "pod is {}, and only running pods have metrics",
                    phase.as_str()
                )
            }
            Self::NodeUnknown(node) => write!(f, "node {node} is not known"),
            Self::NodeNotAsked(node) => write!(f, "node {node} was not asked yet"),
            Self::NodeFails(failure) => failure.fmt(f),
            Self::NotReported { node, answered_ago } => {
                let ago = Seconds(*answered_ago);
                write!(f, "node {node} answered {ago} ago, but has not reported it")
            }
            Self::FirstSample {
                container,
                age,
                due_in,
            } => {
                write!(f, "{}first sample {} old", Of(container), Seconds(*age))?;
                match due_in {
                    Some(time) => write!(f, ", second due in {}", Seconds(*time)),
                    None => f.write_str(", second overdue"),
                }
            }
            Self::NoRate {
                container,
                why,
                due_in,
            } => write!(f, "{}{why}{}", Of(container), Next(*due_in)),
            Self::ClockStepped { container, due_in } => write!(
                f,
                "{}the clock of the node jumped{}",
                Of(container),
                Next(*due_in)
            ),
            Self::NoMemory { container } => {
                write!(f, "{}the node reports no memory", Of(container))
            }
            Self::NoCpu { container } => write!(f, "{}the node reports no cpu time", Of(container)),
            Self::Stale {
                dropped_ago,
                failure,
            } => {
                write!(
                    f,
                    "last value was too old and dropped {} ago",
                    Seconds(*dropped_ago)
                )?;
                failure
                    .iter()
                    .try_for_each(|failure| write!(f, "; {failure}"))
            }
        }
    }
}

impl fmt::Display for NodeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}: {}", self.node, self.why)?;
        self.retry_in
            .iter()
            .try_for_each(|time| write!(f, " (asked again in {})", Seconds(*time)))
    }
}

/// `container app: `, or nothing for a node.
struct Of<'a>(&'a Option<Arc<str>>);

/// When the next sample is due.
struct Next(Option<Duration>);

impl fmt::Display for Of<'_> {
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
