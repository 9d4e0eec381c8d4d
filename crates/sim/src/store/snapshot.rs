//! Consistent reads of a resource, at the current or an earlier version.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use kubevitals_model::LabelSelector;

use super::{FieldSelector, Key, Record, Store};
use crate::objects::Resource;

/// The objects to read.
#[derive(Debug, Clone)]
pub(crate) struct Query {
    pub(crate) resource: Resource,
    /// `None` for all namespaces.
    pub(crate) namespace: Option<String>,
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
}

/// A page of objects, all as of one version.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) version: u64,
    pub(crate) records: Vec<Arc<Record>>,
    /// Set if the page is not the last one: the key of its last object, and the number of objects
    /// that follow, selected or not.
    pub(crate) more: Option<(Arc<str>, u64)>,
}

/// The requested version was dropped from the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expired {
    pub(crate) requested: u64,
    /// The oldest available version.
    pub(crate) oldest: u64,
}

impl Query {
    /// All objects of a resource.
    pub(crate) fn all(resource: Resource) -> Self {
        Self {
            resource,
            namespace: None,
            labels: LabelSelector::default(),
            fields: FieldSelector::default(),
        }
    }

    /// Whether a watch or list with this query includes the object.
    pub(crate) fn selects(&self, record: &Record) -> bool {
        self.namespace
            .as_deref()
            .is_none_or(|namespace| record.namespace() == namespace)
            && self.labels.matches(|key| record.label(key))
            && self.fields.matches(record)
    }

    /// Whether the query has no selectors.
    pub(crate) fn is_unselective(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Returns the range of keys that can be selected, after `after`.
    fn range(&self, after: Option<&str>) -> (Bound<String>, Bound<String>) {
        let (first, last) = match &self.namespace {
            None => (Bound::Unbounded, Bound::Unbounded),
            // `0` follows `/` in the order of bytes.
            Some(namespace) => (
                Bound::Included(format!("{namespace}/")),
                Bound::Excluded(format!("{namespace}0")),
            ),
        };
        match after {
            None => (first, last),
            Some(after) => {
                // A forged token must not reach outside the namespace.
                let after = match &first {
                    Bound::Included(first) if after < first.as_str() => first.clone(),
                    _ => after.to_owned(),
                };
                match &last {
                    Bound::Excluded(end) if after >= *end => {
                        (Bound::Included(end.clone()), Bound::Excluded(end.clone()))
                    }
                    _ => (Bound::Excluded(after), last),
                }
            }
        }
    }
}

impl Store {
    /// Reads the selected objects after the key `after`, at most `limit` unless that is 0, as of
    /// version `at`, or the current one.
    pub(crate) fn snapshot(
        &self,
        query: &Query,
        at: Option<u64>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Snapshot, Expired> {
        let inner = self.read();
        let version = at.unwrap_or(inner.version);
        let mut page = Snapshot {
            version,
            ..Snapshot::default()
        };
        let Some(table) = inner.tables.get(&query.resource) else {
            return Ok(page);
        };
        let (first, last) = query.range(after);
        let bounds = (
            first.as_ref().map(String::as_str),
            last.as_ref().map(String::as_str),
        );
        let mut previous: BTreeMap<&str, Option<&Arc<Record>>> = BTreeMap::new();
        if version < inner.version {
            let Some(changes) = table.log.iter_after(version) else {
                return Err(Expired {
                    requested: version,
                    oldest: table.log.compacted(),
                });
            };
            // The oldest change wins: its previous state is that of the requested version.
            for change in changes.rev() {
                if let Some(record) = change.record() {
                    previous.insert(record.key(), change.previous.as_ref());
                }
            }
        }
        let now = table
            .objects
            .range((bounds.0.map(Key::new), bounds.1.map(Key::new)));
        let now = now.map(|(key, record)| (&**key.full(), record));
        if previous.is_empty() {
            collect(query, limit, now.map(|(_, record)| record), &mut page);
        } else {
            let previous = previous
                .range::<str, _>(bounds)
                .map(|(key, record)| (*key, *record));
            collect(query, limit, at_version(now, previous), &mut page);
        }
        Ok(page)
    }
}

/// Merges the current objects with the previous states of the keys that have changed since. Both
/// are in the order of their keys and nothing is collected, so the cost of a page is proportional
/// to the objects that it visits.
fn at_version<'a>(
    now: impl Iterator<Item = (&'a str, &'a Arc<Record>)>,
    previous: impl Iterator<Item = (&'a str, Option<&'a Arc<Record>>)>,
) -> impl Iterator<Item = &'a Arc<Record>> {
    let (mut now, mut previous) = (now.peekable(), previous.peekable());
    std::iter::from_fn(move || {
        loop {
            let order = match (now.peek(), previous.peek()) {
                (None, None) => return None,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((present, _)), Some((changed, _))) => present.cmp(changed),
            };
            if order == Ordering::Less {
                return now.next().map(|(_, record)| record);
            }
            if order == Ordering::Equal {
                now.next();
            }
            if let Some((_, Some(before))) = previous.next() {
                return Some(before);
            }
        }
    })
}

fn collect<'a>(
    query: &Query,
    limit: usize,
    records: impl Iterator<Item = &'a Arc<Record>>,
    page: &mut Snapshot,
) {
    let mut records = records.peekable();
    while let Some(record) = records.next() {
        if !query.selects(record) {
            continue;
        }
        page.records.push(Arc::clone(record));
        if limit > 0 && page.records.len() == limit {
            if records.peek().is_some() {
                let remaining = u64::try_from(records.count()).unwrap_or(u64::MAX);
                page.more = Some((Arc::clone(record.key()), remaining));
            }
            return;
        }
    }
}
