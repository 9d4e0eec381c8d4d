//! Where a stream brings what it reads.

use std::fmt;
use std::future::Future;

use kubevitals_model::Timestamp;
use tokio::time::Instant;

use crate::decode::WatchEvent;
use crate::error::DecodeError;
use crate::kind::Kind;
use crate::state::Record;

/// One event of a watch, or what could not be read as one.
#[derive(Debug)]
pub(crate) enum Item<K> {
    Event(WatchEvent<K>),
    Unreadable(DecodeError),
}

/// Where an engine brings what it reads. It may be waited for: the connection is not read
/// meanwhile.
pub(crate) trait Sink<K: Kind>: fmt::Debug + Send + Sync + 'static {
    /// A list that is not complete yet.
    type List: Default + Send;

    /// Notes something down about the stream.
    fn note<T>(&self, note: impl FnOnce(&mut Record) -> T) -> T;

    /// Adds to a list that is not complete yet; gives whether a bookmark has now ended it. What
    /// follows the bookmark is left in `items`.
    fn stage(
        &self,
        list: &mut Self::List,
        items: &mut (impl Iterator<Item = Item<K>> + Send),
        received: Timestamp,
    ) -> impl Future<Output = bool> + Send;

    /// Whether the rest of a list is not wanted.
    fn has_enough(&self, _list: &Self::List) -> bool {
        false
    }

    /// The list is complete; gives how many objects it had.
    fn complete(&self, list: Self::List, received: Timestamp, now: Instant) -> usize;

    /// Takes what one chunk of a watch brought; bookmarks and errors are no business of a sink.
    fn apply(
        &self,
        items: impl Iterator<Item = Item<K>> + Send,
        received: Timestamp,
    ) -> impl Future<Output = ()> + Send;
}
