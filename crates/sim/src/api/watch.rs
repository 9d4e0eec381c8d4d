//! Watches: the current objects, then changes, with bookmarks in between.

#![expect(
    clippy::indexing_slicing,
    reason = "JSON trees: a missing member reads as null, and all writes go to objects"
)]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tracing::debug;

use super::body::{self, ApiResponse, Body};
use super::context::ApiContext;
use super::list::{parse_version, query, reject_future_version};
use super::negotiate::View;
use super::request::{Parameters, Target};
use super::resources::ResourceInfo;
use super::status::ApiError;
use super::table;
use crate::store::{Change, Expired, Form, Query, Record};

/// Limit of changes read from the log at once.
const BATCH: usize = 256;
/// Limit of rendered batches queued for the connection.
const QUEUE: usize = 4;
/// Approximate size of a rendered chunk.
const CHUNK: usize = 64 * 1024;
/// Duration of a watch without a timeout of its own; 30 to 60 minutes in kube-apiserver.
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(30);

/// A running watch.
struct Watch {
    context: Arc<ApiContext>,
    info: &'static ResourceInfo,
    query: Query,
    view: View,
    include: table::Include,
    bookmarks: bool,
    /// The version that the client is up to date with.
    cursor: u64,
    /// Whether the client already has the column definitions of the table.
    has_columns: bool,
    sender: mpsc::Sender<Bytes>,
}

/// The reason why a watch ends.
enum WatchEnd {
    /// The client has disconnected.
    ClientGone,
    /// The log was compacted beyond what the client has read.
    FellBehind(Expired),
}

/// Handles a `watch`.
pub(crate) fn watch(
    context: &Arc<ApiContext>,
    info: &'static ResourceInfo,
    target: &Target,
    parameters: &Parameters,
    view: View,
) -> Result<ApiResponse, ApiError> {
    validate(parameters, context.faults.rejects_streaming_lists())?;
    let query = query(info, target, parameters)?;
    let version = parse_version(parameters.get("resourceVersion"))?.unwrap_or(0);
    let send_initial = parameters.flag("sendInitialEvents");
    let timeout = match parameters.number("timeoutSeconds")? {
        None | Some(0) => DEFAULT_TIMEOUT,
        Some(seconds) => Duration::from_secs(seconds),
    };
    let (sender, receiver) = mpsc::channel(QUEUE);
    let mut watch = Watch {
        context: Arc::clone(context),
        info,
        query,
        view,
        include: table::Include::parse(parameters)?,
        bookmarks: parameters.flag("allowWatchBookmarks") == Some(true),
        cursor: version,
        has_columns: false,
        sender,
    };
    let signals = WatchSignals::new(context, info);
    let mut initial = Vec::new();
    let mut first_error = None;
    if send_initial == Some(true) || version == 0 && send_initial.is_none() {
        reject_future_version(context, version)?;
        let snapshot = context.store.snapshot(&watch.query, None, None, 0)?;
        watch.cursor = snapshot.version;
        initial = snapshot.records;
    } else if send_initial == Some(false) && version == 0 {
        watch.cursor = context.store.version();
    } else if let Err(expired) = context.store.changes(info.resource, version, 0) {
        // The watch cache of kube-apiserver also reports this inside the stream.
        first_error = Some(ApiError::from(expired));
    }
    let mark_end = send_initial == Some(true) && watch.bookmarks;
    context.spawn(async move {
        if let Some(error) = first_error {
            let mut event = Vec::new();
            write_json(&mut event, "ERROR", &error.to_value());
            let _client_is_gone = watch.sender.send(Bytes::from(event)).await;
            return;
        }
        let deadline = Instant::now() + timeout;
        if let Err(WatchEnd::FellBehind(expired)) =
            watch.run(initial, mark_end, deadline, signals).await
        {
            debug!(
                resource = watch.info.plural,
                ?expired,
                "ended a watch that does not read"
            );
        }
    });
    Ok(body::response(
        StatusCode::OK,
        "application/json",
        Body::Stream(receiver),
    ))
}

/// Signals that a watch waits for.
struct WatchSignals {
    changes: watch::Receiver<u64>,
    bookmarks: watch::Receiver<u64>,
    drops: watch::Receiver<u64>,
}

impl WatchSignals {
    /// Subscribes before the first read, so that nothing is missed in between.
    fn new(context: &ApiContext, info: &ResourceInfo) -> Self {
        Self {
            changes: context.store.subscribe(info.resource),
            bookmarks: context.bookmark_now.subscribe(),
            drops: context.drop_watches.subscribe(),
        }
    }
}

impl Watch {
    async fn run(
        &mut self,
        initial: Vec<Arc<Record>>,
        mark_end: bool,
        deadline: Instant,
        mut signals: WatchSignals,
    ) -> Result<(), WatchEnd> {
        let mut chunk = Vec::new();
        for record in initial {
            self.write_event(&mut chunk, "ADDED", &record, record.version());
            if chunk.len() >= CHUNK {
                self.send(&mut chunk).await?;
            }
        }
        if mark_end {
            self.write_bookmark(&mut chunk, true);
        }
        self.send(&mut chunk).await?;
        let mut ticks = interval(self.context.bookmark_interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        loop {
            self.catch_up().await?;
            tokio::select! {
                () = self.sender.closed() => return Err(WatchEnd::ClientGone),
                Ok(()) = signals.drops.changed() => return Ok(()),
                Ok(()) = signals.changes.changed() => continue,
                () = sleep_until(deadline) => {
                    // The client can resume from here.
                    self.bookmark().await?;
                    return Ok(());
                }
                _ = ticks.tick() => {}
                Ok(()) = signals.bookmarks.changed() => {}
            }
            self.catch_up().await?;
            self.bookmark().await?;
        }
    }

    /// Sends all changes of the log that the client has not received.
    async fn catch_up(&mut self) -> Result<(), WatchEnd> {
        loop {
            let (changes, version) = self
                .context
                .store
                .changes(self.info.resource, self.cursor, BATCH)
                .map_err(WatchEnd::FellBehind)?;
            let is_last = changes.len() < BATCH;
            let mut chunk = Vec::new();
            for change in changes {
                self.write_change(&mut chunk, &change);
                self.cursor = change.version;
                if chunk.len() >= CHUNK {
                    self.send(&mut chunk).await?;
                }
            }
            self.send(&mut chunk).await?;
            if is_last {
                self.cursor = self.cursor.max(version);
                return Ok(());
            }
        }
    }

    async fn bookmark(&mut self) -> Result<(), WatchEnd> {
        if !self.bookmarks || self.context.faults.bookmarks_are_frozen() {
            return Ok(());
        }
        let mut chunk = Vec::new();
        self.write_bookmark(&mut chunk, false);
        self.send(&mut chunk).await
    }

    async fn send(&self, chunk: &mut Vec<u8>) -> Result<(), WatchEnd> {
        if chunk.is_empty() {
            return Ok(());
        }
        let bytes = Bytes::from(std::mem::take(chunk));
        self.sender
            .send(bytes)
            .await
            .map_err(|_| WatchEnd::ClientGone)
    }

    /// An object that enters or leaves the selection is added or deleted for this client.
    fn write_change(&mut self, out: &mut Vec<u8>, change: &Change) {
        let selected = |record: &Option<Arc<Record>>| {
            record
                .as_ref()
                .filter(|record| self.query.selects(record))
                .map(Arc::clone)
        };
        match (selected(&change.previous), selected(&change.current)) {
            (None, Some(current)) => self.write_event(out, "ADDED", &current, change.version),
            (Some(_), Some(current)) => self.write_event(out, "MODIFIED", &current, change.version),
            (Some(previous), None) => self.write_event(out, "DELETED", &previous, change.version),
            (None, None) => {}
        }
    }

    fn write_event(&mut self, out: &mut Vec<u8>, kind: &str, record: &Arc<Record>, version: u64) {
        let form = match self.view {
            View::Object => Form::Object,
            View::Metadata => Form::Metadata,
            View::Table => {
                let metadata = json!({"resourceVersion": version.to_string()});
                let with_columns = !std::mem::replace(&mut self.has_columns, true);
                let document = table::document(
                    self.info,
                    std::slice::from_ref(record),
                    self.include,
                    self.context.store.now(),
                    &metadata,
                    with_columns,
                );
                write_json(out, kind, &document);
                return;
            }
        };
        write_head(out, kind);
        record.write_at(out, self.info, form, version);
        out.extend_from_slice(b"}\n");
    }

    /// A bookmark is an object without contents. In a table it is a row with such an object.
    fn write_bookmark(&mut self, out: &mut Vec<u8>, ends_initial_events: bool) {
        let mut metadata = json!({"resourceVersion": self.cursor.to_string()});
        if ends_initial_events {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let partial = json!({
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        });
        let object = match self.view {
            View::Metadata => partial,
            View::Object => json!({
                "kind": self.info.kind, "apiVersion": self.info.api_version(), "metadata": metadata,
            }),
            View::Table => {
                let with_columns = !std::mem::replace(&mut self.has_columns, true);
                table::bookmark(self.info, &partial, &metadata, with_columns)
            }
        };
        write_json(out, "BOOKMARK", &object);
    }
}

fn write_head(out: &mut Vec<u8>, kind: &str) {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
}

fn write_json(out: &mut Vec<u8>, kind: &str, object: &Value) {
    write_head(out, kind);
    out.extend_from_slice(object.to_string().as_bytes());
    out.extend_from_slice(b"}\n");
}

fn validate(parameters: &Parameters, without_streaming_lists: bool) -> Result<(), ApiError> {
    let rule = parameters.get("resourceVersionMatch");
    let sends_initial = parameters.flag("sendInitialEvents").is_some();
    if sends_initial && without_streaming_lists {
        let text = "Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
        return Err(ApiError::invalid_options(&[(
            "sendInitialEvents",
            text.to_owned(),
        )]));
    }
    let mut causes = Vec::new();
    let mut forbid =
        |text: &str| causes.push(("resourceVersionMatch", format!("Forbidden: {text}")));
    if sends_initial && rule != "NotOlderThan" {
        forbid("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
    }
    if !rule.is_empty() {
        if !sends_initial {
            forbid(
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            );
        }
        if !parameters.get("continue").is_empty() {
            forbid("resourceVersionMatch is forbidden when continue is provided");
        }
        if rule != "NotOlderThan" {
            causes.push((
                "resourceVersionMatch",
                format!("Unsupported value: {rule:?}: supported values: \"NotOlderThan\""),
            ));
        }
    }
    if causes.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid_options(&causes))
}
