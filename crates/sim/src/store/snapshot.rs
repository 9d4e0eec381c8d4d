//! Consistent reads of a resource, now or as of an earlier version.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use kubevitals_model::LabelSelector;

use super::{FieldSelector, Key, Record, Store};
use crate::objects::Resource;

/// Which objects are wanted.
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
    /// Set if the page ended before the objects did: the key of its last one, and how many objects
    /// follow, selected or not.
    pub(crate) more: Option<(Arc<str>, u64)>,
}

/// The wanted version is no longer known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expired {
    pub(crate) requested: u64,
    /// The oldest version that is still known.
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

    /// Whether a watch or list with this query sees the object.
    pub(crate) fn selects(&self, record: &Record) -> bool {
        self.namespace
            .as_deref()
            .is_none_or(|namespace| record.namespace() == namespace)
            && self.labels.matches(|key| record.label(key))
            && self.fields.matches(record)
    }

    /// Whether it asks for everything of its scope.
    pub(crate) fn is_unselective(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// The keys that can be selected, behind `after`.
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
                // A forged token must not reach outside of the namespace.
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
    /// Reads the selected objects behind the key `after`, at most `limit` if that is not 0, as they
    /// were at version `at`, or now.
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
        let Some(shelf) = inner.shelves.get(&query.resource) else {
            return Ok(page);
        };
        let (first, last) = query.range(after);
        let bounds = (
            first.as_ref().map(String::as_str),
            last.as_ref().map(String::as_str),
        );
        let mut undone: BTreeMap<&str, Option<&Arc<Record>>> = BTreeMap::new();
        if version < inner.version {
            let Some(changes) = shelf.log.iter_after(version) else {
                return Err(Expired {
                    requested: version,
                    oldest: shelf.log.compacted(),
                });
            };
            // The oldest change wins: what was before it was there at the wanted version.
            for change in changes.rev() {
                if let Some(record) = change.record() {
                    undone.insert(record.key(), change.previous.as_ref());
                }
            }
        }
        let now = shelf
            .objects
            .range((bounds.0.map(Key::new), bounds.1.map(Key::new)));
        let now = now.map(|(key, record)| (&**key.full(), record));
        if undone.is_empty() {
            collect(query, limit, now.map(|(_, record)| record), &mut page);
        } else {
            let undone = undone
                .range::<str, _>(bounds)
                .map(|(key, record)| (*key, *record));
            collect(query, limit, as_before(now, undone), &mut page);
        }
        Ok(page)
    }
}

/// The objects as they were: those of now, but for the keys that changed since then what was there
/// before. Both come in the order of their keys, and nothing is gathered, so that a page costs no
/// more than what it looks at.
fn as_before<'a>(
    now: impl Iterator<Item = (&'a str, &'a Arc<Record>)>,
    undone: impl Iterator<Item = (&'a str, Option<&'a Arc<Record>>)>,
) -> impl Iterator<Item = &'a Arc<Record>> {
    let (mut now, mut undone) = (now.peekable(), undone.peekable());
    std::iter::from_fn(move || {
        loop {
            let order = match (now.peek(), undone.peek()) {
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
            if let Some((_, Some(before))) = undone.next() {
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
