//! Watches: the changes since a version, as nodes are published.
//!
//! A watch has no queue of events. It keeps the version up to which it has sent everything. When a
//! newer version exists, it collects the objects that changed since, in the order of their changes,
//! and sends each in its state at the time of writing. A slow client thus receives fewer events,
//! with the latest state of each object.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use kubevitals_apiserver::{Body, BodyError, Encoding, StatusError, WatchRequest};
use kubevitals_model::{AsPodKey as _, Labels, Timestamp};
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::api::Snapshots;
use crate::list::ResponseFormat;
use crate::publish::{LogEntry, LogEvent};
use crate::readers::Reader;
use crate::render::proto::{self, Meta};
use crate::render::{Kind, TypeMeta};
use crate::resource::{encode_object, protobuf_object};
use crate::select::Filter;
use crate::snapshot::{NodeEntry, PodSlot, Snapshot};

/// Limit of the requested timeout.
const MAX_DURATION: Duration = Duration::from_hours(24);

/// The state of one watch request.
struct Watcher {
    snapshots: Arc<Snapshots>,
    format: ResponseFormat,
    filter: Filter,
    revisions: Receiver<u64>,
    /// Everything up to this revision has been sent.
    sent: u64,
    phase: Phase,
    bookmarks: bool,
    deadline: Instant,
    _open: OpenWatch,
}

enum Phase {
    /// Sending the initial objects.
    Initial {
        reader: Reader,
        then_bookmark: bool,
    },
    /// Sending the changes up to a revision.
    Changes {
        changes: std::vec::IntoIter<Change>,
        up_to: u64,
    },
    Waiting,
    Done,
}

struct Change {
    version: u64,
    object: Changed,
}

enum Changed {
    Node(Arc<str>),
    Pod(Arc<PodSlot>),
    Restored(Arc<PodSlot>),
    Deleted(LogEvent),
}

/// Counts a watch for as long as it is open.
struct OpenWatch(Arc<Snapshots>);

/// Opens a watch.
pub(crate) fn open(
    snapshots: &Arc<Snapshots>,
    format: ResponseFormat,
    request: &WatchRequest<'_>,
) -> Result<Body, StatusError> {
    let open = OpenWatch::new(snapshots)?;
    // Before the snapshot is loaded, so that a version in between wakes the watch.
    let revisions = snapshots.revisions.subscribe();
    let from_now = matches!(request.resource_version, "" | "0");
    let initial = request.send_initial_events.unwrap_or(from_now);
    let (phase, sent) = if initial {
        let reader = Reader::open(snapshots, format.kind, &request.list);
        let sent = reader.read(|cursor| cursor.version()).unwrap_or_default();
        let then_bookmark = request.send_initial_events == Some(true) && request.allow_bookmarks;
        let phase = Phase::Initial {
            reader,
            then_bookmark,
        };
        (phase, sent)
    } else {
        let current = snapshots.current.load().version;
        let sent = if from_now {
            current
        } else {
            known_revision(snapshots, request.resource_version, current)?
        };
        (Phase::Waiting, sent)
    };
    snapshots.counters.watches.fetch_add(1, Ordering::Relaxed);
    let now = Instant::now();
    let watcher = Watcher {
        snapshots: Arc::clone(snapshots),
        format,
        filter: Filter::of(&request.list),
        revisions,
        sent,
        phase,
        bookmarks: request.allow_bookmarks,
        deadline: now + request.timeout.min(MAX_DURATION),
        _open: open,
    };
    let events = stream::unfold(watcher, |mut watcher| async move {
        let chunk = watcher.next().await?;
        Some((chunk, watcher))
    });
    Ok(Body::fallible(events))
}

/// Returns the revision of a version from which a watch can go on: one of this replica, since which
/// all deletions are known.
fn known_revision(snapshots: &Snapshots, version: &str, current: u64) -> Result<u64, StatusError> {
    let version = parse_version(version)?;
    let revision = snapshots.versions.revision(version);
    let is_known = |revision: &u64| {
        *revision <= current && snapshots.writer.lock().log_since(*revision).is_some()
    };
    revision
        .filter(is_known)
        .ok_or_else(|| StatusError::Expired {
            message: too_old(version, snapshots.versions.version(current)),
        })
}

impl Watcher {
    /// Returns the next chunk of events; `None` at the end.
    async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        let mut out = Vec::new();
        while out.is_empty() {
            if Instant::now() >= self.deadline {
                return None;
            }
            match &mut self.phase {
                Phase::Initial { .. } => {
                    if let Err(aborted) = self.send_initial(&mut out) {
                        self.phase = Phase::Done;
                        return Some(Err(aborted));
                    }
                }
                Phase::Changes { .. } => self.send_changes(&mut out),
                Phase::Waiting => self.wait(&mut out).await?,
                Phase::Done => return None,
            }
        }
        Some(Ok(Bytes::from(out)))
    }

    fn send_initial(&mut self, out: &mut Vec<u8>) -> Result<(), BodyError> {
        let Phase::Initial {
            reader,
            then_bookmark,
        } = &self.phase
        else {
            return Ok(());
        };
        let then_bookmark = *then_bookmark;
        let mut message = Vec::new();
        let are_all = reader.read(|cursor| {
            while out.len() < self.snapshots.config.limits.chunk_bytes {
                let Some(object) = cursor.next() else {
                    return true;
                };
                let content = object.message(&mut message);
                self.put_event(out, "ADDED", content, object.modified);
            }
            false
        })?;
        if are_all {
            self.phase = Phase::Waiting;
            if then_bookmark {
                self.put_bookmark(out, true);
            }
        }
        Ok(())
    }

    fn send_changes(&mut self, out: &mut Vec<u8>) {
        let snapshot = self.snapshots.current.load();
        let versions = self.snapshots.versions;
        let to_version = |revision| versions.version(revision);
        let Phase::Changes { changes, up_to } = &mut self.phase else {
            return;
        };
        let mut message = Vec::new();
        while out.len() < self.snapshots.config.limits.chunk_bytes {
            let Some(change) = changes.next() else {
                self.sent = *up_to;
                self.phase = Phase::Waiting;
                return;
            };
            let version = change.version;
            let event = |added: u64| {
                if added > self.sent {
                    "ADDED"
                } else {
                    "MODIFIED"
                }
            };
            match &change.object {
                Changed::Node(name) => {
                    let entry = snapshot.node(name);
                    if let Some((object, own)) =
                        entry.and_then(|entry| Some((entry.own()?, entry.own?)))
                    {
                        let content = object.message(&mut message);
                        put_event(
                            out,
                            self.format,
                            event(own.added),
                            content,
                            to_version(version),
                        );
                    }
                }
                Changed::Pod(slot) => {
                    if let Some(object) = snapshot.pod(slot) {
                        let added = slot.added.load(Ordering::Relaxed);
                        let content = object.message(&mut message);
                        put_event(out, self.format, event(added), content, to_version(version));
                    }
                }
                Changed::Restored(slot) => {
                    if is_served(&snapshot, slot)
                        && let Some(object) = snapshot.pod(slot)
                    {
                        let content = object.message(&mut message);
                        put_event(out, self.format, "ADDED", content, to_version(version));
                    }
                }
                Changed::Deleted(deleted) => {
                    if !still_exists(&snapshot, &self.filter, deleted, version) {
                        let message = deleted_message(deleted, self.snapshots.config.clock.now());
                        put_event(out, self.format, "DELETED", &message, to_version(version));
                    }
                }
            }
        }
    }

    /// Waits for changes or the next bookmark; `None` at the end.
    async fn wait(&mut self, out: &mut Vec<u8>) -> Option<()> {
        let limits = self.snapshots.config.limits;
        if *self.revisions.borrow_and_update() <= self.sent {
            let bookmark = Instant::now() + limits.bookmark_interval;
            let until = bookmark.min(self.deadline);
            match timeout_at(until, self.revisions.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return None,
                Err(_) if until < self.deadline && self.bookmarks => {
                    self.put_bookmark(out, false);
                    return Some(());
                }
                Err(_) => return Some(()),
            }
            let send = Instant::now() + limits.watch_delay;
            sleep_until(send.min(self.deadline)).await;
        }
        self.phase = self.collect_changes(out);
        Some(())
    }

    /// Collects the changes since the last version sent.
    fn collect_changes(&mut self, out: &mut Vec<u8>) -> Phase {
        let (log, snapshot) = {
            let writer = self.snapshots.writer.lock();
            (
                writer.log_since(self.sent),
                self.snapshots.current.load_full(),
            )
        };
        let Some(log) = log else {
            let [sent, current] = [self.sent, snapshot.version]
                .map(|revision| self.snapshots.versions.version(revision));
            put_expired(out, self.format, &too_old(sent, current));
            return Phase::Done;
        };
        let mut changes = Vec::new();
        changes.extend(
            log.into_iter()
                .filter_map(|entry| self.logged_change(entry)),
        );
        for entry in snapshot
            .nodes
            .iter()
            .filter(|entry| entry.modified > self.sent)
        {
            match self.format.kind {
                Kind::Node => self.collect_node(entry, &mut changes),
                Kind::Pod => self.collect_pods(&snapshot, entry, &mut changes),
            }
        }
        changes.sort_by_key(|change| change.version);
        Phase::Changes {
            changes: changes.into_iter(),
            up_to: snapshot.version,
        }
    }

    fn collect_node(&self, entry: &NodeEntry, changes: &mut Vec<Change>) {
        let name = entry.name.as_str();
        if let Some(own) = entry.own
            && own.modified > self.sent
            && self.filter.matches_node(name, &entry.labels)
        {
            changes.push(Change {
                version: own.modified,
                object: Changed::Node(name.into()),
            });
        }
    }

    fn collect_pods(&self, snapshot: &Snapshot, entry: &NodeEntry, changes: &mut Vec<Change>) {
        let node = entry.name.as_str();
        for span in &entry.pods {
            let slot = &span.slot;
            if span.modified > self.sent
                && self.filter.matches_pod(slot, node)
                && is_served(snapshot, slot)
            {
                changes.push(Change {
                    version: span.modified,
                    object: Changed::Pod(Arc::clone(slot)),
                });
            }
        }
    }

    /// Converts a log entry that matches the request. A pod that was added and deleted since the
    /// last version sent is skipped.
    fn logged_change(&self, entry: LogEntry) -> Option<Change> {
        let matches = match (&entry.event, self.format.kind) {
            (LogEvent::NodeDeleted(name, labels), Kind::Node) => {
                self.filter.matches_node(name.as_str(), labels)
            }
            (LogEvent::PodDeleted(slot, node), Kind::Pod) => {
                slot.added.load(Ordering::Relaxed) <= self.sent
                    && self.filter.matches_pod(slot, node.as_str())
            }
            (LogEvent::PodRestored(slot, node), Kind::Pod) => {
                self.filter.matches_pod(slot, node.as_str())
            }
            _ => false,
        };
        let object = match entry.event {
            LogEvent::PodRestored(slot, _) => Changed::Restored(slot),
            deleted => Changed::Deleted(deleted),
        };
        matches.then_some(Change {
            version: entry.version,
            object,
        })
    }

    fn put_bookmark(&self, out: &mut Vec<u8>, initial_end: bool) {
        let message = proto::bookmark(initial_end);
        self.put_event(out, "BOOKMARK", &message, self.sent);
    }

    fn put_event(&self, out: &mut Vec<u8>, event: &str, message: &[u8], revision: u64) {
        let version = self.snapshots.versions.version(revision);
        put_event(out, self.format, event, message, version);
    }
}

impl OpenWatch {
    fn new(snapshots: &Arc<Snapshots>) -> Result<Self, StatusError> {
        let open = snapshots
            .counters
            .open_watches
            .fetch_add(1, Ordering::Relaxed);
        let this = Self(Arc::clone(snapshots));
        if open < snapshots.config.limits.max_watches {
            return Ok(this);
        }
        snapshots.counters.rejected.fetch_add(1, Ordering::Relaxed);
        Err(StatusError::TooManyRequests {
            message: format!("too many open watches ({open}), please try again later"),
            retry_after_seconds: 10,
        })
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.0.counters.open_watches.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the message of a deleted object, of which only the metadata is left.
fn deleted_message(deleted: &LogEvent, created: Timestamp) -> Vec<u8> {
    proto::without_usage(match deleted {
        LogEvent::NodeDeleted(name, labels) => Meta {
            name: name.as_str(),
            namespace: "",
            created,
            labels,
        },
        LogEvent::PodDeleted(slot, _) | LogEvent::PodRestored(slot, _) => Meta {
            name: slot.key.name(),
            namespace: slot.key.namespace(),
            created,
            labels: &slot.labels,
        },
    })
}

fn is_served(snapshot: &Snapshot, slot: &Arc<PodSlot>) -> bool {
    let served = snapshot.pods.get(slot.key.as_pod_key());
    served.is_some_and(|own| Arc::ptr_eq(own, slot))
}

/// Whether a matching object of the same name existed at the time of this deletion and still does.
/// For one that was added later the deletion must be sent: a client that resumes in between would
/// not learn of it otherwise.
fn still_exists(snapshot: &Snapshot, filter: &Filter, deleted: &LogEvent, version: u64) -> bool {
    let matches =
        |entry: &NodeEntry, labels: &Labels| filter.matches_node(entry.name.as_str(), labels);
    match deleted {
        LogEvent::NodeDeleted(name, _) => {
            let entry = snapshot.node(name.as_str());
            entry.is_some_and(|entry| {
                entry.own.is_some_and(|own| own.modified <= version)
                    && matches(entry, &entry.labels)
            })
        }
        LogEvent::PodDeleted(slot, _) | LogEvent::PodRestored(slot, _) => {
            let now = snapshot.pods.get(slot.key.as_pod_key());
            now.is_some_and(|slot| {
                let entry = snapshot.nodes.get(slot.node);
                let modified = snapshot.pod(slot).map(|object| object.modified);
                modified.is_some_and(|modified| modified <= version)
                    && entry.is_some_and(|entry| filter.matches_pod(slot, entry.name.as_str()))
            })
        }
    }
}

fn put_event(out: &mut Vec<u8>, format: ResponseFormat, event: &str, message: &[u8], version: u64) {
    let mut digits = itoa::Buffer::new();
    let version = digits.format(version);
    match format.representation.encoding {
        Encoding::Json => {
            put_json(out, event, &encode_object(format, message, version));
        }
        Encoding::Protobuf => {
            let (kind, message) = protobuf_object(format, message, version);
            proto::put_event(out, event, kind, &message);
        }
    }
}

fn put_expired(out: &mut Vec<u8>, format: ResponseFormat, message: &str) {
    let kind = TypeMeta {
        api_version: "v1",
        kind: "Status",
    };
    match format.representation.encoding {
        Encoding::Json => {
            // The message contains nothing that JSON escapes.
            let status = format!(
                r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"{message}","reason":"Expired","code":410}}"#
            );
            put_json(out, "ERROR", status.as_bytes());
        }
        Encoding::Protobuf => {
            proto::put_event(out, "ERROR", kind, &proto::expired_status(message));
        }
    }
}

fn put_json(out: &mut Vec<u8>, event: &str, object: &[u8]) {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(event.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    out.extend_from_slice(object.strip_suffix(b"\n").unwrap_or(object));
    out.extend_from_slice(b"}\n");
}

fn parse_version(text: &str) -> Result<u64, StatusError> {
    text.parse().map_err(|_| StatusError::BadRequest {
        message: format!(
            "invalid resource version {text:?}: must be a number returned by a list or watch"
        ),
    })
}

fn too_old(requested: u64, current: u64) -> String {
    format!("too old resource version: {requested} ({current})")
}
