//! The receiving end of an engine.

use std::fmt;
use std::future::Future;

use kubevitals_model::Timestamp;
use tokio::time::Instant;

use crate::decode::WatchEvent;
use crate::error::DecodeError;
use crate::kind::Kind;
use crate::state::WatchStats;

/// One event of a watch, or the error of decoding one.
#[derive(Debug)]
pub(crate) enum Item<K> {
    Event(WatchEvent<K>),
    Unreadable(DecodeError),
}

/// Receives the objects that an engine reads. While a call is pending the connection is not read.
pub(crate) trait Sink<K: Kind>: fmt::Debug + Send + Sync + 'static {
    /// An incomplete list.
    type List: Default + Send;

    /// Updates the counters of the watch.
    fn record<T>(&self, update: impl FnOnce(&mut WatchStats) -> T) -> T;

    /// Adds to an incomplete list; returns whether a bookmark has completed it. Items after the
    /// bookmark are left in `items`.
    fn stage(
        &self,
        list: &mut Self::List,
        items: &mut (impl Iterator<Item = Item<K>> + Send),
        received: Timestamp,
    ) -> impl Future<Output = bool> + Send;

    /// Whether the rest of the list is not needed.
    fn has_enough(&self, _list: &Self::List) -> bool {
        false
    }

    /// Completes a list and returns the number of its objects.
    fn complete(&self, list: Self::List, received: Timestamp, now: Instant) -> usize;

    /// Applies the items of one chunk of a watch. A sink ignores bookmarks and errors.
    fn apply(
        &self,
        items: impl Iterator<Item = Item<K>> + Send,
        received: Timestamp,
    ) -> impl Future<Output = ()> + Send;
}
