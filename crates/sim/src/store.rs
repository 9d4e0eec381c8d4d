//! The objects of the simulated cluster: a resource version counter, compact records, and a bounded
//! log of changes for each resource.
//!
//! Watches have no queues: each reads the shared log from its own position and is woken when the
//! log grows. A write costs the same with a thousand watches as with one, and a slow watch holds no
//! memory; it ends when the log is compacted beyond its position.

pub(crate) mod fields;
mod key;
pub(crate) mod log;
pub(crate) mod record;
pub(crate) mod snapshot;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kubevitals_model::{Clock, Timestamp};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use serde_json::{Map, Value};
use tokio::sync::watch;

use crate::api::resources::{self, ResourceInfo};
use crate::objects::{ObjectText, ObjectWriter, Resource, WriteError};
use crate::seed::Seed;

pub(crate) use fields::FieldSelector;
pub(crate) use key::join_key;
use key::{Key, check_names, key_of};
pub(crate) use log::Change;
pub use log::HistoryLimits;
use log::Log;
pub(crate) use record::{Content, Form, Record};
pub(crate) use snapshot::{Expired, Query, Snapshot};

/// All objects.
pub(crate) struct Store {
    inner: RwLock<Inner>,
    /// Notifies the watches of each resource that its log has grown.
    signals: BTreeMap<Resource, watch::Sender<u64>>,
    limits: HistoryLimits,
    clock: Clock,
    /// Generates uids and name suffixes.
    random: Mutex<Seed>,
}

#[derive(Default)]
struct Inner {
    version: u64,
    tables: BTreeMap<Resource, ResourceTable>,
}

#[derive(Default)]
struct ResourceTable {
    objects: BTreeMap<Key, Arc<Record>>,
    log: Log,
}

/// The precondition of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Precondition {
    /// The object does not exist.
    Absent,
    /// The object exists.
    Present,
    /// The object exists with exactly this version.
    Version(u64),
}

impl Store {
    pub(crate) fn new(limits: HistoryLimits, clock: Clock, seed: u64) -> Self {
        let signals = resources::all()
            .iter()
            .map(|info| (info.resource, watch::Sender::new(0)))
            .collect();
        Self {
            inner: RwLock::default(),
            signals,
            limits,
            clock,
            random: Mutex::new(Seed::new(seed)),
        }
    }

    /// The current time of the simulated cluster.
    pub(crate) fn now(&self) -> SystemTime {
        system_time(self.clock.now())
    }

    /// Returns the version of the last write.
    pub(crate) fn version(&self) -> u64 {
        self.read().version
    }

    pub(crate) fn count(&self, resource: Resource) -> usize {
        self.read()
            .tables
            .get(&resource)
            .map_or(0, |table| table.objects.len())
    }

    pub(crate) fn get(&self, resource: Resource, key: &str) -> Option<Arc<Record>> {
        self.read()
            .tables
            .get(&resource)?
            .objects
            .get(&Key::new(key))
            .map(Arc::clone)
    }

    /// Writes an object. Writing the same contents changes nothing.
    pub(crate) fn put(
        &self,
        resource: Resource,
        mut object: Map<String, Value>,
        precondition: Precondition,
    ) -> Result<Arc<Record>, WriteError> {
        let info = resources::info(resource);
        let key = key_of(info, &object)?;
        self.stamp(info, &key, &mut object);
        let content = Content::encode(info, &object)?;
        drop(object);
        self.store(resource, &key, content, precondition)
    }

    /// Writes an object that is already text.
    fn put_text(
        &self,
        resource: Resource,
        object: &ObjectText,
        precondition: Precondition,
    ) -> Result<u64, WriteError> {
        let (namespace, name) = object.key.split_once('/').unwrap_or_default();
        check_names(resources::info(resource), namespace, name)?;
        if object.has_nul {
            return Err(WriteError::Invalid {
                resource,
                reason: "a label or a field contains a NUL".to_owned(),
            });
        }
        let content = Content::of_text(object);
        Ok(self
            .store(resource, &object.key, content, precondition)?
            .version())
    }

    fn store(
        &self,
        resource: Resource,
        key: &str,
        content: Content,
        precondition: Precondition,
    ) -> Result<Arc<Record>, WriteError> {
        let lookup = Key::new(key);
        let mut inner = self.inner.write();
        let version = inner.version + 1;
        let table = inner.tables.entry(resource).or_default();
        let (record, previous) = if precondition == Precondition::Absent {
            // One lookup for a new object: most writes of a busy cluster create events.
            let Entry::Vacant(vacant) = table.objects.entry(lookup) else {
                return Err(WriteError::AlreadyExists {
                    resource,
                    key: key.to_owned(),
                });
            };
            let record = Arc::new(Record::new(
                Arc::clone(vacant.key().full()),
                version,
                content,
            ));
            vacant.insert(Arc::clone(&record));
            (record, None)
        } else {
            let current = table.objects.get_mut(&lookup);
            check(
                resource,
                key,
                current.as_deref().map(AsRef::as_ref),
                precondition,
            )?;
            let Some(current) = current else {
                return Err(not_found(resource, key));
            };
            if current.content().is_same(&content) {
                return Ok(Arc::clone(current));
            }
            let record = Arc::new(Record::new(Arc::clone(current.key()), version, content));
            let previous = std::mem::replace(current, Arc::clone(&record));
            (record, Some(previous))
        };
        let change = Change {
            version,
            current: Some(Arc::clone(&record)),
            previous,
        };
        table.log.push(change, self.limits);
        inner.version = version;
        drop(inner);
        self.wake(resource, version);
        Ok(record)
    }

    /// Removes an object, and returns its last state and the version of the removal.
    pub(crate) fn remove(
        &self,
        resource: Resource,
        key: &str,
        precondition: Precondition,
    ) -> Result<(Arc<Record>, u64), WriteError> {
        let mut inner = self.inner.write();
        let version = inner.version + 1;
        let table = inner.tables.entry(resource).or_default();
        let lookup = Key::new(key);
        if precondition != Precondition::Present {
            let existing = table.objects.get(&lookup).map(AsRef::as_ref);
            check(resource, key, existing, precondition)?;
        }
        let Some(previous) = table.objects.remove(&lookup) else {
            return Err(not_found(resource, key));
        };
        let change = Change {
            version,
            current: None,
            previous: Some(Arc::clone(&previous)),
        };
        table.log.push(change, self.limits);
        inner.version = version;
        drop(inner);
        self.wake(resource, version);
        Ok((previous, version))
    }

    /// Drops the change logs: watches from earlier versions must relist.
    pub(crate) fn compact(&self) {
        let mut inner = self.inner.write();
        let now = inner.version;
        for info in resources::all() {
            inner
                .tables
                .entry(info.resource)
                .or_default()
                .log
                .compact(now);
        }
    }

    /// Returns up to `limit` changes after a version, and the current version of the store.
    pub(crate) fn changes(
        &self,
        resource: Resource,
        after: u64,
        limit: usize,
    ) -> Result<(Vec<Change>, u64), Expired> {
        let inner = self.read();
        let changes = match inner.tables.get(&resource) {
            None => Some(Vec::new()),
            Some(table) => table.log.after(after, limit),
        };
        changes
            .map(|changes| (changes, inner.version))
            .ok_or_else(|| Expired {
                requested: after,
                oldest: inner
                    .tables
                    .get(&resource)
                    .map_or(0, |table| table.log.compacted()),
            })
    }

    /// Returns a receiver that is notified of every change of the resource.
    pub(crate) fn subscribe(&self, resource: Resource) -> watch::Receiver<u64> {
        match self.signals.get(&resource) {
            Some(wake) => wake.subscribe(),
            None => watch::Sender::new(0).subscribe(),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read()
    }

    fn wake(&self, resource: Resource, version: u64) {
        if let Some(wake) = self.signals.get(&resource) {
            wake.send_modify(|latest| *latest = version.max(*latest));
        }
    }

    /// Sets uid and creationTimestamp. An object that is replaced keeps its identity.
    fn stamp(&self, info: &ResourceInfo, key: &str, object: &mut Map<String, Value>) {
        let Some(Value::Object(metadata)) = object.get_mut("metadata") else {
            return;
        };
        let lacks = |metadata: &Map<String, Value>, name: &str| {
            metadata
                .get(name)
                .is_none_or(|value| value.is_null() || value == "")
        };
        if !lacks(metadata, "uid") && !lacks(metadata, "creationTimestamp") {
            return;
        }
        let mut existing = self
            .get(info.resource, key)
            .map(|record| record.metadata(info))
            .unwrap_or_default();
        if lacks(metadata, "uid") {
            let uid = existing
                .remove("uid")
                .unwrap_or_else(|| Value::String(self.random.lock().uid().to_string()));
            metadata.insert("uid".to_owned(), uid);
        }
        if lacks(metadata, "creationTimestamp") {
            let created = existing
                .remove("creationTimestamp")
                .unwrap_or_else(|| Value::String(timestamp(self.now())));
            metadata.insert("creationTimestamp".to_owned(), created);
        }
    }

    /// Returns a generated name with this prefix.
    pub(crate) fn generate_name(&self, prefix: &str) -> String {
        let mut name = prefix.to_owned();
        self.random.lock().push_suffix(&mut name, 5);
        name
    }
}

impl ObjectWriter for Store {
    fn create(&self, resource: Resource, object: Value) -> Result<u64, WriteError> {
        let object = as_map(resource, object)?;
        Ok(self.put(resource, object, Precondition::Absent)?.version())
    }

    fn replace(&self, resource: Resource, object: Value) -> Result<u64, WriteError> {
        let object = as_map(resource, object)?;
        Ok(self.put(resource, object, Precondition::Present)?.version())
    }

    fn create_text(&self, resource: Resource, object: &ObjectText) -> Result<u64, WriteError> {
        self.put_text(resource, object, Precondition::Absent)
    }

    fn replace_text(&self, resource: Resource, object: &ObjectText) -> Result<u64, WriteError> {
        self.put_text(resource, object, Precondition::Present)
    }

    fn delete(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<u64, WriteError> {
        let key = join_key(namespace.unwrap_or_default(), name);
        Ok(self.remove(resource, &key, Precondition::Present)?.1)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("version", &self.version())
            .finish_non_exhaustive()
    }
}

pub(crate) fn system_time(at: Timestamp) -> SystemTime {
    let millis = u64::try_from(at.unix_millis()).unwrap_or(0);
    UNIX_EPOCH + Duration::from_millis(millis)
}

/// Formats a time as Kubernetes does: RFC 3339 in UTC, to the second.
pub(crate) fn timestamp(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time)
        .map(|time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
        .unwrap_or_default()
}

fn as_map(resource: Resource, object: Value) -> Result<Map<String, Value>, WriteError> {
    match object {
        Value::Object(object) => Ok(object),
        _ => Err(WriteError::Invalid {
            resource,
            reason: "not a JSON object".to_owned(),
        }),
    }
}

fn not_found(resource: Resource, key: &str) -> WriteError {
    WriteError::NotFound {
        resource,
        key: key.to_owned(),
    }
}

fn check(
    resource: Resource,
    key: &str,
    existing: Option<&Record>,
    precondition: Precondition,
) -> Result<(), WriteError> {
    match (precondition, existing) {
        (Precondition::Absent, None) | (Precondition::Present, Some(_)) => Ok(()),
        (Precondition::Absent, Some(_)) => Err(WriteError::AlreadyExists {
            resource,
            key: key.to_owned(),
        }),
        (_, None) => Err(not_found(resource, key)),
        (Precondition::Version(version), Some(record)) if record.version() == version => Ok(()),
        (Precondition::Version(_), Some(_)) => Err(WriteError::Conflict {
            resource,
            key: key.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests;
