//! Watches: what has changed since a version, as nodes publish.
//!
//! A watch keeps no queue of events. It remembers up to which version it has told everything; when
//! something newer is there it looks which objects have changed since, in the order of their
//! changes, and writes each as it is by the time that its turn comes. A reader that is slow so gets
//! the latest of each object, and fewer of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures_util::stream;
use kubevitals_apiserver::{Body, Encoding, StatusError, WatchRequest};
use kubevitals_model::{AsPodKey as _, Labels, Timestamp};
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::api::State;
use crate::catalog::{Catalog, NodeEntry, PodSlot};
use crate::list::ListForm;
use crate::publish::{LogEntry, Logged};
use crate::render::proto::{self, Meta};
use crate::render::{Kind, TypeMeta};
use crate::resource::{bare, one};
use crate::select::{Cursor, Filter};

/// One reader.
struct Watcher {
    state: Arc<State>,
    form: ListForm,
    filter: Filter,
    versions: Receiver<u64>,
    /// Everything up to this version has been told.
    told: u64,
    phase: Phase,
    bookmarks: bool,
    deadline: Instant,
    _open: OpenWatch,
}

enum Phase {
    /// Telling what is there.
    Initial {
        cursor: Cursor,
        then_bookmark: bool,
    },
    /// Telling what has changed up to a version.
    Changes {
        changes: std::vec::IntoIter<Change>,
        up_to: u64,
    },
    Waiting,
    Over,
}

/// What has changed, and with which version.
struct Change {
    version: u64,
    what: Changed,
}

enum Changed {
    Node(Arc<str>),
    Pod(Arc<PodSlot>),
    Back(Arc<PodSlot>),
    Gone(Logged),
}

/// Counts a watch as long as it is open.
struct OpenWatch(Arc<State>);

/// Begins a watch.
pub(crate) fn open(
    state: &Arc<State>,
    form: ListForm,
    request: &WatchRequest<'_>,
) -> Result<Body, StatusError> {
    let open = OpenWatch::new(state)?;
    // Before the catalog is taken: a version that comes in between must wake.
    let versions = state.versions.subscribe();
    let from_now = matches!(request.resource_version, "" | "0");
    let initial = request.send_initial_events.unwrap_or(from_now);
    let (phase, told) = if initial {
        let cursor = Cursor::open(state, form.kind, &request.list)?;
        let told = cursor.version();
        let then_bookmark = request.send_initial_events == Some(true) && request.allow_bookmarks;
        let phase = Phase::Initial {
            cursor,
            then_bookmark,
        };
        (phase, told)
    } else {
        let current = state.catalog.load().version;
        let told = if from_now {
            current
        } else {
            version_of(request.resource_version)?
        };
        if told > current || state.writer().log_since(told).is_none() {
            return Err(StatusError::Expired {
                message: too_old(told, current),
            });
        }
        (Phase::Waiting, told)
    };
    state.counts.watches.fetch_add(1, Ordering::Relaxed);
    let now = Instant::now();
    let longest = std::time::Duration::from_hours(24);
    let watcher = Watcher {
        state: Arc::clone(state),
        form,
        filter: Filter::of(&request.list),
        versions,
        told,
        phase,
        bookmarks: request.allow_bookmarks,
        deadline: now + request.timeout.min(longest),
        _open: open,
    };
    let events = stream::unfold(watcher, |mut watcher| async move {
        let piece = watcher.next().await?;
        Some((piece, watcher))
    });
    Ok(Body::stream(events))
}

impl Watcher {
    /// The next events that belong together; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        let mut out = Vec::new();
        while out.is_empty() {
            if Instant::now() >= self.deadline {
                return None;
            }
            match &mut self.phase {
                Phase::Initial { .. } => self.tell_initial(&mut out),
                Phase::Changes { .. } => self.tell_changes(&mut out),
                Phase::Waiting => self.wait(&mut out).await?,
                Phase::Over => return None,
            }
        }
        Some(Bytes::from(out))
    }

    fn tell_initial(&mut self, out: &mut Vec<u8>) {
        let Phase::Initial {
            cursor,
            then_bookmark,
        } = &mut self.phase
        else {
            return;
        };
        let mut message = Vec::new();
        while out.len() < self.state.config.limits.piece_bytes {
            let Some(found) = cursor.next() else {
                let then_bookmark = *then_bookmark;
                self.phase = Phase::Waiting;
                if then_bookmark {
                    self.put_bookmark(out, true);
                }
                return;
            };
            let told = found.message(&mut message);
            put_event(out, self.form, "ADDED", told, found.since);
        }
    }

    fn tell_changes(&mut self, out: &mut Vec<u8>) {
        let catalog = self.state.catalog.load();
        let Phase::Changes { changes, up_to } = &mut self.phase else {
            return;
        };
        let mut message = Vec::new();
        while out.len() < self.state.config.limits.piece_bytes {
            let Some(change) = changes.next() else {
                self.told = *up_to;
                self.phase = Phase::Waiting;
                return;
            };
            let version = change.version;
            let event = |born: u64| {
                if born > self.told {
                    "ADDED"
                } else {
                    "MODIFIED"
                }
            };
            match &change.what {
                Changed::Node(name) => {
                    let entry = catalog.node(name);
                    if let Some((found, own)) =
                        entry.and_then(|entry| Some((entry.own()?, entry.own?)))
                    {
                        let told = found.message(&mut message);
                        put_event(out, self.form, event(own.born), told, version);
                    }
                }
                Changed::Pod(slot) => {
                    if let Some(found) = catalog.pod(slot) {
                        let born = slot.born.load(Ordering::Relaxed);
                        let told = found.message(&mut message);
                        put_event(out, self.form, event(born), told, version);
                    }
                }
                Changed::Back(slot) => {
                    if is_served(&catalog, slot)
                        && let Some(found) = catalog.pod(slot)
                    {
                        let told = found.message(&mut message);
                        put_event(out, self.form, "ADDED", told, version);
                    }
                }
                Changed::Gone(departed) => {
                    if !still_there(&catalog, &self.filter, departed, version) {
                        let message = message_of_departed(departed, self.state.config.clock.now());
                        put_event(out, self.form, "DELETED", &message, version);
                    }
                }
            }
        }
    }

    /// Waits until there is something to tell; `None` at the end.
    async fn wait(&mut self, out: &mut Vec<u8>) -> Option<()> {
        let limits = self.state.config.limits;
        if *self.versions.borrow_and_update() <= self.told {
            let silent = Instant::now() + limits.bookmarks;
            let until = silent.min(self.deadline);
            match timeout_at(until, self.versions.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return None,
                Err(_) if until < self.deadline && self.bookmarks => {
                    self.put_bookmark(out, false);
                    return Some(());
                }
                Err(_) => return Some(()),
            }
            let gathered = Instant::now() + limits.gather;
            sleep_until(gathered.min(self.deadline)).await;
        }
        self.phase = self.look(out);
        Some(())
    }

    /// What has changed since what was told last.
    fn look(&mut self, out: &mut Vec<u8>) -> Phase {
        let (log, catalog) = {
            let writer = self.state.writer();
            (writer.log_since(self.told), self.state.catalog.load_full())
        };
        let Some(log) = log else {
            put_expired(out, self.form, &too_old(self.told, catalog.version));
            return Phase::Over;
        };
        let mut changes = Vec::new();
        changes.extend(log.into_iter().filter_map(|entry| self.logged(entry)));
        for entry in catalog
            .nodes
            .iter()
            .filter(|entry| entry.latest > self.told)
        {
            match self.form.kind {
                Kind::Node => self.look_at_node(entry, &mut changes),
                Kind::Pod => self.look_at_pods(&catalog, entry, &mut changes),
            }
        }
        changes.sort_by_key(|change| change.version);
        Phase::Changes {
            changes: changes.into_iter(),
            up_to: catalog.version,
        }
    }

    fn look_at_node(&self, entry: &NodeEntry, changes: &mut Vec<Change>) {
        let name = entry.name.as_str();
        if let Some(own) = entry.own
            && own.since > self.told
            && self.filter.takes_node(name, &entry.labels)
        {
            changes.push(Change {
                version: own.since,
                what: Changed::Node(name.into()),
            });
        }
    }

    fn look_at_pods(&self, catalog: &Catalog, entry: &NodeEntry, changes: &mut Vec<Change>) {
        let node = entry.name.as_str();
        for piece in &entry.pods {
            let slot = &piece.slot;
            if piece.since > self.told
                && self.filter.takes_pod(slot, node)
                && is_served(catalog, slot)
            {
                changes.push(Change {
                    version: piece.since,
                    what: Changed::Pod(Arc::clone(slot)),
                });
            }
        }
    }

    /// What of the log concerns the reader. Of what came and went in between it was never told.
    fn logged(&self, entry: LogEntry) -> Option<Change> {
        let concerns = match (&entry.what, self.form.kind) {
            (Logged::NodeGone(name, labels), Kind::Node) => {
                self.filter.takes_node(name.as_str(), labels)
            }
            (Logged::PodGone(slot, node), Kind::Pod) => {
                slot.born.load(Ordering::Relaxed) <= self.told
                    && self.filter.takes_pod(slot, node.as_str())
            }
            (Logged::PodBack(slot, node), Kind::Pod) => self.filter.takes_pod(slot, node.as_str()),
            _ => false,
        };
        let what = match entry.what {
            Logged::PodBack(slot, _) => Changed::Back(slot),
            gone => Changed::Gone(gone),
        };
        concerns.then_some(Change {
            version: entry.version,
            what,
        })
    }

    fn put_bookmark(&self, out: &mut Vec<u8>, initial_end: bool) {
        let message = proto::bookmark(initial_end);
        put_event(out, self.form, "BOOKMARK", &message, self.told);
    }
}

impl OpenWatch {
    fn new(state: &Arc<State>) -> Result<Self, StatusError> {
        let open = state.counts.open_watches.fetch_add(1, Ordering::Relaxed);
        let this = Self(Arc::clone(state));
        if open < state.config.limits.watches {
            return Ok(this);
        }
        state.counts.refused.fetch_add(1, Ordering::Relaxed);
        Err(StatusError::TooManyRequests {
            message: format!("{open} watches are open, and no more are allowed"),
            retry_after_seconds: 10,
        })
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.0.counts.open_watches.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Of what went only its metadata is left.
fn message_of_departed(departed: &Logged, created: Timestamp) -> Vec<u8> {
    proto::departed(match departed {
        Logged::NodeGone(name, labels) => Meta {
            name: name.as_str(),
            namespace: "",
            created,
            labels,
        },
        Logged::PodGone(slot, _) | Logged::PodBack(slot, _) => Meta {
            name: slot.key.name(),
            namespace: slot.key.namespace(),
            created,
            labels: &slot.labels,
        },
    })
}

fn is_served(catalog: &Catalog, slot: &Arc<PodSlot>) -> bool {
    let served = catalog.pods.get(slot.key.as_pod_key());
    served.is_some_and(|own| Arc::ptr_eq(own, slot))
}

/// Whether an object of the same name was there, and selected, when this one went, and still is.
/// One that came later is told of later: the reader may break off in between, go on from there, and
/// would not know that the first is gone.
fn still_there(catalog: &Catalog, filter: &Filter, departed: &Logged, version: u64) -> bool {
    let takes = |entry: &NodeEntry, labels: &Labels| filter.takes_node(entry.name.as_str(), labels);
    match departed {
        Logged::NodeGone(name, _) => {
            let entry = catalog.node(name.as_str());
            entry.is_some_and(|entry| {
                entry.own.is_some_and(|own| own.since <= version) && takes(entry, &entry.labels)
            })
        }
        Logged::PodGone(slot, _) | Logged::PodBack(slot, _) => {
            let now = catalog.pods.get(slot.key.as_pod_key());
            now.is_some_and(|slot| {
                let entry = catalog.nodes.get(slot.node);
                let since = catalog.pod(slot).map(|found| found.since);
                since.is_some_and(|since| since <= version)
                    && entry.is_some_and(|entry| filter.takes_pod(slot, entry.name.as_str()))
            })
        }
    }
}

fn put_event(out: &mut Vec<u8>, form: ListForm, event: &str, message: &[u8], version: u64) {
    let mut digits = itoa::Buffer::new();
    let version = digits.format(version);
    match form.representation.encoding {
        Encoding::Json => {
            put_json(out, event, &one(form, message, version));
        }
        Encoding::Protobuf => {
            let (kind, message) = bare(form, message, version);
            proto::put_event(out, event, kind, &message);
        }
    }
}

fn put_expired(out: &mut Vec<u8>, form: ListForm, message: &str) {
    let kind = TypeMeta {
        api_version: "v1",
        kind: "Status",
    };
    match form.representation.encoding {
        Encoding::Json => {
            // The message is made of numbers and plain words.
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

fn version_of(text: &str) -> Result<u64, StatusError> {
    text.parse().map_err(|_| StatusError::BadRequest {
        message: format!(
            "invalid resource version {text:?}: it is a number from a list or a watch"
        ),
    })
}

fn too_old(asked: u64, current: u64) -> String {
    format!("too old resource version: {asked} ({current})")
}
