//! The responses that hold a snapshot, and the limit on what they hold.
//!
//! A response encodes a snapshot while its client reads, and meanwhile nodes publish: what it holds
//! becomes outdated. When unfinished responses hold too much, the oldest is aborted. Refusing the
//! newest instead would let a few clients that do not read turn everybody else away.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kubevitals_apiserver::{BodyError, ListRequest};
use parking_lot::Mutex;

use crate::api::Snapshots;
use crate::render::Kind;
use crate::select::Cursor;

type SharedCursor = Arc<Mutex<Option<Cursor>>>;

/// The unfinished responses of an API, oldest first.
#[derive(Default)]
pub(crate) struct Readers {
    next: u64,
    open: BTreeMap<u64, SharedCursor>,
}

/// A response that holds a snapshot until it is encoded, dropped or aborted.
pub(crate) struct Reader {
    number: u64,
    cursor: SharedCursor,
    snapshots: Arc<Snapshots>,
}

impl Reader {
    /// Opens the current snapshot for a request. Aborts the oldest responses if they hold too much.
    pub(crate) fn open(snapshots: &Arc<Snapshots>, kind: Kind, request: &ListRequest<'_>) -> Self {
        snapshots.abort_outdated();
        let cursor = Cursor::open(snapshots, kind, request);
        let cursor = Arc::new(Mutex::new(Some(cursor)));
        let mut readers = snapshots.readers.lock();
        readers.next += 1;
        let number = readers.next;
        readers.open.insert(number, Arc::clone(&cursor));
        drop(readers);
        Self {
            number,
            cursor,
            snapshots: Arc::clone(snapshots),
        }
    }

    /// Reads from the snapshot.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&mut Cursor) -> T) -> Result<T, BodyError> {
        match self.cursor.lock().as_mut() {
            Some(cursor) => Ok(read(cursor)),
            None => Err(BodyError::Broken(String::from(
                "the client read too slowly: the response held too much outdated usage",
            ))),
        }
    }

    /// Releases the snapshot.
    pub(crate) fn finish(&self) {
        self.snapshots.readers.lock().open.remove(&self.number);
        drop(self.cursor.lock().take());
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Snapshots {
    /// Returns the bytes that are no longer served but still held by unfinished responses.
    pub(crate) fn outdated_bytes(&self) -> usize {
        let live = self.live_bytes.load(Ordering::Relaxed);
        live.saturating_sub(self.current_bytes.load(Ordering::Relaxed))
    }

    /// Aborts the oldest responses until the others hold less than the limit, or than one whole
    /// snapshot in a cluster where that is more.
    fn abort_outdated(&self) {
        let current = self.current_bytes.load(Ordering::Relaxed);
        let max = self.config.limits.max_outdated_bytes.max(current);
        while self.outdated_bytes() > max {
            let oldest = self.readers.lock().open.pop_first();
            let Some((_, cursor)) = oldest else {
                return;
            };
            let held = cursor.lock().take();
            if held.is_some() {
                self.counters.aborted.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
