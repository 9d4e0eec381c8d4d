//! Events.

use std::sync::Arc;

use super::identity::{Identity, Uid};
use crate::timestamp::Timestamp;

/// A Kubernetes Event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub identity: Identity,
    /// In whole seconds.
    pub created: Option<Timestamp>,
    pub regarding: ObjectReference,
    /// A CamelCase word such as `Pulled`.
    pub reason: Option<Arc<str>>,
    /// A sentence for people.
    pub message: Option<Arc<str>>,
    /// `Normal` or `Warning`.
    pub kind: Option<Arc<str>>,
    /// The number of occurrences, as components with the older client count them.
    pub count: i32,
    /// The first occurrence, in whole seconds.
    pub first: Option<Timestamp>,
    /// The last occurrence, in whole seconds.
    pub last: Option<Timestamp>,
    /// `eventTime` of components with the newer client; to the millisecond here.
    pub time: Option<Timestamp>,
    /// Repeated occurrences, from components with the newer client.
    pub series: Option<EventSeries>,
    /// The component that reported the event.
    pub component: Option<Arc<str>>,
    /// The node or instance of that component.
    pub instance: Option<Arc<str>>,
}

/// The object that an event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectReference {
    /// The kind, such as `Pod`.
    pub kind: Arc<str>,
    /// Empty for cluster-scoped objects.
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    /// Some components leave it out or write something else here.
    pub uid: Uid,
    /// The part of the object, such as `spec.containers{app}`.
    pub field_path: Option<Arc<str>>,
}

/// Repeated occurrences of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventSeries {
    pub count: i32,
    pub last: Option<Timestamp>,
}

impl Event {
    /// Returns the time of the last occurrence, by the most precise field that is set.
    pub fn happened(&self) -> Option<Timestamp> {
        let series = self.series.and_then(|series| series.last);
        series
            .or(self.last)
            .or(self.time)
            .or(self.first)
            .or(self.created)
    }

    /// Returns the number of occurrences by either way of counting, at least one.
    pub fn occurrences(&self) -> i32 {
        let series = self.series.map_or(0, |series| series.count);
        self.count.max(series).max(1)
    }
}
