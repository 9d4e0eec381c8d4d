//! An API server in memory: one resource, a log of events, and faults on command.

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::fmt::Write;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use kubevitals_model::PodSummary;
use kubevitals_watch::{
    BoxBody, Reflector, ResponseFuture, Transport, TransportError, WatchClient, WatchOptions,
    WatchSpec,
};
use tokio::sync::mpsc;

use crate::protobuf;

/// More than any test sends before it is read.
const CHUNKS: usize = 100_000;

/// Waits for what must happen, by the paused clock: a hang reaches the limit within moments.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let limit = Duration::from_hours(1);
    let result = tokio::time::timeout(limit, future).await;
    result.unwrap_or_else(|_| panic!("not within {limit:?}: {what}"))
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Fake {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) objects: BTreeMap<String, (u64, u64)>,
    pub(crate) version: u64,
    /// Version and line of each event that is still remembered.
    log: VecDeque<(u64, String)>,
    /// Events up to here are forgotten.
    pub(crate) compacted: u64,
    watchers: Vec<Watcher>,
    pub(crate) requests: Vec<String>,
    pub(crate) streaming: Streaming,
    /// Answers to the next requests, instead of what they ask for.
    pub(crate) faults: VecDeque<Fault>,
    /// Whether an expired watch ends with an ERROR event, as of a real server that has begun to
    /// respond.
    pub(crate) expires_by_event: bool,
    /// Bodies are cut into chunks of so many bytes; 0 does not cut.
    pub(crate) chunk: usize,
    /// Whether responses are protobuf for clients that accept it.
    pub(crate) protobuf: bool,
    /// The number of pages after the first that respond with 410.
    pub(crate) expired_pages: u32,
    uids: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Streaming {
    #[default]
    Known,
    Refused(u16),
    Ignored,
}

#[derive(Debug, Clone)]
pub(crate) enum Fault {
    Status(u16, Option<&'static str>),
    Unreachable,
    Hang,
    Panic,
    /// Answers 200 and this body, then ends.
    Body(String),
    /// Answers 200 and this body, then says nothing.
    Silent(String),
    /// Answers 200 and these chunks, then says nothing.
    Chunks(Vec<Vec<u8>>),
    /// Answers 200 with this content encoding.
    Encoded(&'static str),
}

#[derive(Debug)]
struct Watcher {
    to: mpsc::Sender<Result<Bytes, &'static str>>,
    chunk: usize,
    protobuf: bool,
}

struct Chunks(mpsc::Receiver<Result<Bytes, &'static str>>);

impl Fake {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn server(&self) -> WatchClient {
        WatchClient::new(self.clone())
    }

    pub(crate) fn pods(&self) -> Reflector<PodSummary> {
        self.pods_with(|_| {})
    }

    pub(crate) fn pods_with(
        &self,
        change: impl FnOnce(&mut WatchOptions),
    ) -> Reflector<PodSummary> {
        let mut options = WatchOptions {
            seed: Some(7),
            ..WatchOptions::default()
        };
        change(&mut options);
        self.server()
            .reflector(WatchSpec::new("pods").options(options))
    }

    /// Creates or changes a pod.
    pub(crate) fn put(&self, name: &str) {
        self.lock().put(name);
    }

    pub(crate) fn delete(&self, name: &str) {
        self.lock().delete(name);
    }

    /// Names and versions, as [`view`] gives them of a stream.
    pub(crate) fn objects(&self) -> Vec<(String, u64)> {
        let state = self.lock();
        state
            .objects
            .iter()
            .map(|(name, (version, _))| (name.clone(), *version))
            .collect()
    }

    pub(crate) fn watchers(&self) -> usize {
        let state = self.lock();
        state
            .watchers
            .iter()
            .filter(|watcher| !watcher.to.is_closed())
            .count()
    }

    /// Requests since this was last asked, without those parameters that are always there.
    pub(crate) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().requests)
    }

    pub(crate) fn drop_watches(&self) {
        self.lock().watchers.clear();
    }

    pub(crate) fn break_watches(&self) {
        for watcher in self.lock().watchers.drain(..) {
            let _ = watcher.to.try_send(Err("connection reset"));
        }
    }

    pub(crate) fn send_all(&self, line: &str) {
        self.lock().broadcast(line);
    }

    pub(crate) fn bookmark(&self) {
        let mut state = self.lock();
        let line = bookmark(state.version, false);
        state.broadcast(&line);
    }

    /// Forgets all events.
    pub(crate) fn compact(&self) {
        let mut state = self.lock();
        state.compacted = state.version;
        state.log.clear();
    }
}

impl State {
    fn put(&mut self, name: &str) {
        self.version += 1;
        let known = self.objects.get(name).map(|(_, uid)| *uid);
        let uid = known.unwrap_or_else(|| {
            self.uids += 1;
            self.uids
        });
        self.objects.insert(name.to_owned(), (self.version, uid));
        let kind = if known.is_some() { "MODIFIED" } else { "ADDED" };
        self.happen(&event(kind, name, self.version, uid));
    }

    fn delete(&mut self, name: &str) {
        if let Some((_, uid)) = self.objects.remove(name) {
            self.version += 1;
            self.happen(&event("DELETED", name, self.version, uid));
        }
    }

    fn happen(&mut self, line: &str) {
        self.log.push_back((self.version, line.to_owned()));
        self.broadcast(line);
    }

    fn broadcast(&mut self, line: &str) {
        self.watchers.retain(|watcher| watcher.send(line));
    }

    fn respond(&mut self, target: &str) -> Option<Result<Response<BoxBody>, TransportError>> {
        self.requests.push(target.to_owned());
        let query = |name: &str| {
            let parameters = target
                .split_once('?')
                .map_or("", |(_, query)| query)
                .split('&');
            let mut pairs = parameters.filter_map(|pair| pair.split_once('='));
            pairs
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value.to_owned())
        };
        if let Some(fault) = self.faults.pop_front() {
            return self.fault(fault);
        }
        if query("watch").is_none() {
            return Some(Ok(self.page(query("limit"), query("continue"))));
        }
        let is_streaming = query("sendInitialEvents").is_some();
        match self.streaming {
            Streaming::Refused(code) if is_streaming => {
                return Some(Ok(status(self.protobuf, code, None)));
            }
            Streaming::Ignored if is_streaming => return Some(Ok(self.initial(false))),
            _ if is_streaming => return Some(Ok(self.initial(true))),
            _ => {}
        }
        let from: u64 = query("resourceVersion").unwrap().parse().unwrap();
        if from < self.compacted {
            if self.expires_by_event {
                let gone = format!(r#"{{"type":"ERROR","object":{}}}"#, status_body(410));
                return Some(Ok(self.ended(&gone)));
            }
            return Some(Ok(status(self.protobuf, 410, None)));
        }
        let missed: Vec<String> = self
            .log
            .iter()
            .filter(|(version, _)| *version > from)
            .map(|(_, line)| line.clone())
            .collect();
        Some(Ok(self.watch(&missed)))
    }

    fn fault(&mut self, fault: Fault) -> Option<Result<Response<BoxBody>, TransportError>> {
        Some(match fault {
            Fault::Status(code, retry_after) => Ok(status(self.protobuf, code, retry_after)),
            Fault::Unreachable => Err(TransportError::Request("connection refused".into())),
            Fault::Hang => return None,
            Fault::Panic => panic!("the transport panics"),
            Fault::Body(body) => Ok(self.ended(&body)),
            Fault::Silent(body) => {
                let response = self.watch(&[body]);
                // No events reach it any more, but it stays open.
                let watcher = self.watchers.pop().unwrap();
                std::mem::forget(watcher.to);
                Ok(response)
            }
            Fault::Chunks(chunks) => {
                let response = self.watch(&[]);
                let watcher = self.watchers.pop().unwrap();
                for chunk in chunks {
                    watcher.to.try_send(Ok(Bytes::from(chunk))).unwrap();
                }
                std::mem::forget(watcher.to);
                Ok(response)
            }
            Fault::Encoded(encoding) => {
                let mut response = self.watch(&[]);
                response
                    .headers_mut()
                    .insert("content-encoding", encoding.parse().unwrap());
                Ok(response)
            }
        })
    }

    fn initial(&mut self, is_marked: bool) -> Response<BoxBody> {
        let objects = self.objects.iter();
        let mut lines: Vec<String> = objects
            .map(|(name, (version, uid))| event("ADDED", name, *version, *uid))
            .collect();
        if is_marked {
            lines.push(bookmark(self.version, true));
        }
        self.watch(&lines)
    }

    fn page(&mut self, limit: Option<String>, next: Option<String>) -> Response<BoxBody> {
        let limit: usize = limit.unwrap().parse().unwrap();
        if next.is_some() && self.expired_pages > 0 {
            self.expired_pages -= 1;
            return status(self.protobuf, 410, None);
        }
        let from: usize = next.map_or(0, |next| next.parse().unwrap());
        let page: Vec<String> = self
            .objects
            .iter()
            .skip(from)
            .take(limit)
            .map(|(name, (version, uid))| pod(name, *version, *uid))
            .collect();
        let end = from + page.len();
        let next = if end < self.objects.len() {
            end.to_string()
        } else {
            String::new()
        };
        let body = format!(
            r#"{{"metadata":{{"resourceVersion":"{}","continue":"{next}"}},"items":[{}]}}"#,
            self.version,
            page.join(",")
        );
        if !self.protobuf {
            return self.ended(&body);
        }
        let response = self.watch(&[]);
        let watcher = self.watchers.pop().unwrap();
        watcher.send_bytes(&protobuf::list(&body));
        response
    }

    fn watch(&mut self, lines: &[String]) -> Response<BoxBody> {
        let (to, from) = mpsc::channel(CHUNKS);
        let watcher = Watcher {
            to,
            chunk: self.chunk,
            protobuf: self.protobuf,
        };
        for line in lines {
            watcher.send(line);
        }
        self.watchers.push(watcher);
        let mut response = Response::new(Box::pin(Chunks(from)) as BoxBody);
        if self.protobuf {
            response
                .headers_mut()
                .insert("content-type", protobuf::CONTENT_TYPE.parse().unwrap());
        }
        response
    }

    fn ended(&mut self, body: &str) -> Response<BoxBody> {
        let response = self.watch(&[body.to_owned()]);
        self.watchers.pop();
        response
    }
}

impl Watcher {
    fn send(&self, line: &str) -> bool {
        if self.protobuf {
            self.send_bytes(&protobuf::frame(line))
        } else {
            self.send_bytes(format!("{line}\n").as_bytes())
        }
    }

    fn send_bytes(&self, bytes: &[u8]) -> bool {
        let size = if self.chunk == 0 {
            bytes.len()
        } else {
            self.chunk
        };
        let mut chunks = bytes.chunks(size);
        chunks.all(|chunk| self.to.try_send(Ok(Bytes::copy_from_slice(chunk))).is_ok())
    }
}

impl Transport for Fake {
    fn get(&self, request: Request<()>) -> ResponseFuture<'_> {
        assert_eq!(request.headers()["accept-encoding"], "identity");
        if self.lock().protobuf {
            let accept = request.headers()["accept"].to_str().unwrap();
            assert!(accept.starts_with(protobuf::CONTENT_TYPE), "{accept}");
        }
        let response = self.lock().respond(&request.uri().to_string());
        Box::pin(async move {
            match response {
                Some(response) => response,
                None => std::future::pending().await,
            }
        })
    }
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0
            .poll_recv(context)
            .map(|chunk| Some(chunk?.map(Frame::data).map_err(Into::into)))
    }
}

pub(crate) fn event(kind: &str, name: &str, version: u64, uid: u64) -> String {
    format!(
        r#"{{"type":"{kind}","object":{}}}"#,
        pod(name, version, uid)
    )
}

pub(crate) fn bookmark(version: u64, is_end: bool) -> String {
    let end = if is_end {
        r#","annotations":{"k8s.io/initial-events-end":"true"}"#
    } else {
        ""
    };
    format!(
        r#"{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"{version}"{end}}}}}}}"#
    )
}

/// Names and versions of what a stream or a mirror holds.
pub(crate) fn view(objects: &[Arc<PodSummary>]) -> Vec<(String, u64)> {
    let mut view: Vec<(String, u64)> = objects
        .iter()
        .map(|pod| {
            let version = pod.identity.resource_version.as_number().unwrap();
            (pod.identity.name.to_string(), version)
        })
        .collect();
    view.sort();
    view
}

/// Lets everything happen that is due within this time.
pub(crate) async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

fn pod(name: &str, version: u64, uid: u64) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"default","uid":"{uid}","resourceVersion":"{version}","managedFields":[{{"a":[1,2]}}]}},"spec":{{"nodeName":"n"}},"status":{{"phase":"Running"}}}}"#
    )
}

fn status_body(code: u16) -> String {
    let mut body = String::new();
    write!(
        body,
        r#"{{"kind":"Status","code":{code},"message":"fault {code}"}}"#
    )
    .unwrap();
    body
}

fn status(protobuf: bool, code: u16, retry_after: Option<&str>) -> Response<BoxBody> {
    let (to, from) = mpsc::channel(1);
    let body = status_body(code);
    let body = if protobuf {
        protobuf::status(&body).into()
    } else {
        Bytes::from(body)
    };
    to.try_send(Ok(body)).unwrap();
    let mut response = Response::new(Box::pin(Chunks(from)) as BoxBody);
    if protobuf {
        response
            .headers_mut()
            .insert("content-type", protobuf::CONTENT_TYPE.parse().unwrap());
    }
    *response.status_mut() = code.try_into().unwrap();
    if let Some(seconds) = retry_after {
        response
            .headers_mut()
            .insert("retry-after", seconds.parse().unwrap());
    }
    response
}
