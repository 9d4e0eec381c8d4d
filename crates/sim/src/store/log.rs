//! Recent changes of one resource, for watches and for reads of earlier versions.

use std::collections::VecDeque;
use std::sync::Arc;

use super::record::Record;

/// A change of one object.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    /// The resourceVersion of the change.
    pub(crate) version: u64,
    /// The new state; `None` if the object was deleted.
    pub(crate) current: Option<Arc<Record>>,
    /// The previous state; `None` if the object was created.
    pub(crate) previous: Option<Arc<Record>>,
}

/// Limits of the watch history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryLimits {
    /// Limit of changes per resource.
    pub changes: usize,
    /// Limit of bytes that the changes of one resource keep alive.
    pub bytes: usize,
}

#[derive(Debug, Default)]
pub(super) struct Log {
    changes: VecDeque<Change>,
    bytes: usize,
    /// Changes up to this version may be missing.
    compacted: u64,
}

impl Default for HistoryLimits {
    /// A minute of a busy cluster.
    fn default() -> Self {
        Self {
            changes: 50_000,
            bytes: 64 * 1024 * 1024,
        }
    }
}

impl Change {
    fn size(&self) -> usize {
        let size = |record: &Option<Arc<Record>>| record.as_ref().map_or(0, |record| record.size());
        size(&self.current) + size(&self.previous)
    }

    /// The object, in its last state if it was deleted.
    pub(crate) fn record(&self) -> Option<&Arc<Record>> {
        self.current.as_ref().or(self.previous.as_ref())
    }
}

impl Log {
    pub(super) fn push(&mut self, change: Change, limits: HistoryLimits) {
        self.bytes += change.size();
        self.changes.push_back(change);
        while self.changes.len() > limits.changes || self.bytes > limits.bytes {
            let Some(oldest) = self.changes.pop_front() else {
                break;
            };
            self.bytes = self.bytes.saturating_sub(oldest.size());
            self.compacted = oldest.version;
        }
    }

    /// Drops all changes up to `now`.
    pub(super) fn compact(&mut self, now: u64) {
        self.changes.clear();
        self.bytes = 0;
        self.compacted = now;
    }

    /// The newest version whose changes may be missing.
    pub(super) fn compacted(&self) -> u64 {
        self.compacted
    }

    /// Returns up to `limit` changes after `version`; `None` if some of them were dropped.
    pub(super) fn after(&self, version: u64, limit: usize) -> Option<Vec<Change>> {
        Some(self.iter_after(version)?.take(limit).cloned().collect())
    }

    /// Returns all changes after `version`, oldest first; `None` if some of them were dropped.
    pub(super) fn iter_after(
        &self,
        version: u64,
    ) -> Option<impl DoubleEndedIterator<Item = &Change>> {
        if version < self.compacted {
            return None;
        }
        let first = self
            .changes
            .partition_point(|change| change.version <= version);
        Some(self.changes.range(first..))
    }
}
