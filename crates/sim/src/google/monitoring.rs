//! A fake of Cloud Monitoring: `timeSeries.create` and `metricDescriptors.create`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use http::request::Parts;
use kubevitals_model::{Clock, Timestamp};
use parking_lot::Mutex;
use serde_json::{Value as Json, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::errors::{Refused, error, message, summary};
use super::rules::{DUPLICATE, INTERNAL, Known, follow, read};
use super::serve::{self, Answer, Service};

/// Maximum number of series of a call.
const MAX_SERIES: usize = 200;

/// What goes wrong with one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MonitoringFault {
    /// This status with these headers; nothing is written.
    Status(u16, Vec<(&'static str, String)>),
    /// All is written, and the answer is this status nevertheless.
    WrittenThen(u16),
    /// No answer; nothing is written.
    Hang,
    /// All is written, and there is no answer.
    WrittenThenHang,
    /// The connection is closed; nothing is written.
    Close,
    /// The series at these positions fail inside of the backend, the others are written.
    Internal(Vec<usize>),
    /// The series at these positions fail, and the message does not say which.
    Unnamed(Vec<usize>),
}

/// The form of errors that name series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MessageStyle {
    /// `<reason>: timeSeries[1-2]`
    #[default]
    Ranges,
    /// `<reason>: k8s_node{} timeSeries[1]: <metric>{}`
    Resource,
    /// `timeSeries[1-2] (example …): write for resource=… failed with: <reason>`
    Example,
}

/// A point that was written.
#[derive(Debug, Clone, PartialEq)]
pub struct WrittenPoint {
    pub metric_type: String,
    pub metric_labels: BTreeMap<String, String>,
    pub resource_type: String,
    pub resource_labels: BTreeMap<String, String>,
    pub kind: String,
    pub value_type: String,
    pub unit: String,
    pub start: Option<Timestamp>,
    pub end: Timestamp,
    pub value: Json,
}

/// A call of `timeSeries.create`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedCall {
    /// The number of its series.
    pub series: usize,
    /// The status of the answer; 0 if there was none.
    pub status: u16,
    pub authorization: Option<String>,
    /// The project whose quota it counts against.
    pub quota_project: Option<String>,
}

/// What was received so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReceivedSeries {
    pub calls: Vec<ReceivedCall>,
    pub points: Vec<WrittenPoint>,
    pub descriptors: Vec<Json>,
}

/// A running fake. It ends when it is dropped.
#[derive(Debug)]
pub struct CloudMonitoring {
    pub address: SocketAddr,
    state: Arc<State>,
    received: watch::Receiver<ReceivedSeries>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct State {
    project: String,
    clock: Clock,
    faults: Mutex<VecDeque<MonitoringFault>>,
    /// What goes wrong once there are no more faults.
    otherwise: Mutex<Option<MonitoringFault>>,
    descriptor_statuses: Mutex<VecDeque<u16>>,
    style: Mutex<MessageStyle>,
    /// The token that is required; `None` for any.
    token: Mutex<Option<String>>,
    series: Mutex<BTreeMap<String, Known>>,
    /// Kind and type of each metric.
    metrics: Mutex<BTreeMap<String, (String, String)>>,
    received: watch::Sender<ReceivedSeries>,
}

impl CloudMonitoring {
    /// Listens on an address, for one project; port 0 takes a free one.
    pub async fn start(
        address: SocketAddr,
        tls: Option<TlsAcceptor>,
        project: &str,
        clock: Clock,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let (sender, received) = watch::channel(ReceivedSeries::default());
        let state = Arc::new(State {
            project: project.to_owned(),
            clock,
            faults: Mutex::default(),
            otherwise: Mutex::default(),
            descriptor_statuses: Mutex::default(),
            style: Mutex::default(),
            token: Mutex::default(),
            series: Mutex::default(),
            metrics: Mutex::default(),
            received: sender,
        });
        let task = tokio::spawn(serve::serve(listener, tls, Arc::clone(&state)));
        Ok(Self {
            address,
            state,
            received,
            task,
        })
    }

    /// Lets the next calls that write points go wrong like this.
    pub fn fail(&self, faults: impl IntoIterator<Item = MonitoringFault>) {
        self.state.faults.lock().extend(faults);
    }

    /// Lets all further calls go wrong like this, or none.
    pub fn always(&self, fault: Option<MonitoringFault>) {
        *self.state.otherwise.lock() = fault;
    }

    /// Answers the next calls that describe metrics with these statuses.
    pub fn fail_descriptors(&self, statuses: impl IntoIterator<Item = u16>) {
        self.state.descriptor_statuses.lock().extend(statuses);
    }

    pub fn set_style(&self, style: MessageStyle) {
        *self.state.style.lock() = style;
    }

    /// Requires a token; `None` for any, or none at all.
    pub fn require_token(&self, token: Option<&str>) {
        *self.state.token.lock() = token.map(str::to_owned);
    }

    pub fn received(&self) -> ReceivedSeries {
        self.received.borrow().clone()
    }

    /// Waits until what was received matches.
    pub async fn until(&self, is_wanted: impl Fn(&ReceivedSeries) -> bool) -> ReceivedSeries {
        let mut received = self.received.clone();
        let found = received.wait_for(is_wanted).await;
        found.map(|found| found.clone()).unwrap_or_default()
    }
}

impl Drop for CloudMonitoring {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Service for State {
    async fn answer(&self, head: Parts, body: Bytes) -> Option<Answer> {
        let header = |name: &str| {
            let value = head.headers.get(name)?.to_str().ok()?;
            Some(value.to_owned())
        };
        let body: Json = serde_json::from_slice(&body).unwrap_or_default();
        let series = body.get("timeSeries").and_then(Json::as_array);
        let series = series.map_or(&[][..], Vec::as_slice);
        let call = ReceivedCall {
            series: series.len(),
            status: 0,
            authorization: header("authorization"),
            quota_project: header("x-goog-user-project"),
        };
        let token = self.token.lock().clone();
        let bearer = token.map(|token| format!("Bearer {token}"));
        let base = format!("/v3/projects/{}/", self.project);
        match head.uri.path().strip_prefix(&base) {
            _ if bearer.is_some() && bearer != call.authorization => {
                self.called(call, 401);
                let message = "Request had invalid authentication credentials.";
                Some(error(401, message, None))
            }
            Some("timeSeries") => self.create_series(series, call).await,
            Some("metricDescriptors") => Some(self.create_descriptor(&body)),
            _ => Some(error(404, "Requested entity was not found.", None)),
        }
    }
}

impl State {
    async fn create_series(&self, series: &[Json], call: ReceivedCall) -> Option<Answer> {
        let fault = self.faults.lock().pop_front();
        let fault = fault.or_else(|| self.otherwise.lock().clone());
        let (status, answer) = match fault {
            None => self.write(series, &[], true),
            Some(MonitoringFault::Internal(positions)) => self.write(series, &positions, true),
            Some(MonitoringFault::Unnamed(positions)) => self.write(series, &positions, false),
            Some(MonitoringFault::Status(status, headers)) => {
                let mut answer = error(status, "as the test says", None);
                for (name, value) in headers {
                    if let Ok(value) = HeaderValue::from_str(&value) {
                        answer.headers_mut().insert(name, value);
                    }
                }
                (status, answer)
            }
            Some(MonitoringFault::WrittenThen(status)) => {
                self.write(series, &[], false);
                (status, error(status, "Deadline expired.", None))
            }
            Some(MonitoringFault::Close) => {
                self.called(call, 0);
                return None;
            }
            Some(fault @ (MonitoringFault::Hang | MonitoringFault::WrittenThenHang)) => {
                if fault == MonitoringFault::WrittenThenHang {
                    self.write(series, &[], false);
                }
                self.called(call, 0);
                return std::future::pending().await;
            }
        };
        self.called(call, status);
        Some(answer)
    }

    fn called(&self, call: ReceivedCall, status: u16) {
        self.received
            .send_modify(|received| received.calls.push(ReceivedCall { status, ..call }));
    }

    /// Writes the good series, except those at `failing`, which fail inside.
    fn write(&self, series: &[Json], failing: &[usize], is_named: bool) -> (u16, Answer) {
        if series.is_empty() || series.len() > MAX_SERIES {
            let message = format!(
                "Field timeSeries had an invalid value: A request has 1 to {MAX_SERIES} TimeSeries."
            );
            return (400, error(400, &message, None));
        }
        let now = self.clock.now();
        let mut refused: Vec<Refused> = Vec::new();
        let mut seen = BTreeSet::new();
        let mut written = Vec::new();
        for (at, one) in series.iter().enumerate() {
            if failing.contains(&at) {
                refused.push((at, 13, INTERNAL.to_owned()));
                continue;
            }
            match self.write_one(one, now, &mut seen) {
                Ok(point) => written.push(point),
                Err(reason) => refused.push((at, 3, reason)),
            }
        }
        let success = written.len();
        self.received
            .send_modify(|received| received.points.extend(written));
        if refused.is_empty() {
            return (200, serve::json(200, &json!({})));
        }
        let is_internal = refused.iter().all(|(_, code, _)| *code == 13);
        let status = if is_internal && is_named { 500 } else { 400 };
        let message = if is_named {
            message(*self.style.lock(), &refused)
        } else {
            "One or more TimeSeries could not be written.".to_owned()
        };
        let summary = summary(series.len(), success, &refused);
        (status, error(status, &message, Some(summary)))
    }

    fn write_one(
        &self,
        series: &Json,
        now: Timestamp,
        seen: &mut BTreeSet<String>,
    ) -> Result<WrittenPoint, String> {
        let point = read(series, &self.project, now)?;
        let key = format!(
            "{} {:?} {} {:?}",
            point.metric_type, point.metric_labels, point.resource_type, point.resource_labels
        );
        if !seen.insert(key.clone()) {
            return Err(DUPLICATE.to_owned());
        }
        let mut metrics = self.metrics.lock();
        let form = (point.kind.clone(), point.value_type.clone());
        // A metric without a descriptor gets one by its first point.
        let known = metrics.entry(point.metric_type.clone());
        if *known.or_insert_with(|| form.clone()) != form {
            return Err("The metric has another kind or type.".to_owned());
        }
        drop(metrics);
        let mut all = self.series.lock();
        follow(&point, all.get(&key))?;
        let (start, end) = (point.start, point.end);
        all.insert(key, Known { start, end });
        Ok(point)
    }

    fn create_descriptor(&self, descriptor: &Json) -> Answer {
        if let Some(status) = self.descriptor_statuses.lock().pop_front() {
            return error(status, "as the test says", None);
        }
        let text = |name: &str| {
            let found = descriptor.get(name).and_then(Json::as_str);
            found.unwrap_or_default().to_owned()
        };
        let name = text("type");
        let mut metrics = self.metrics.lock();
        if metrics.contains_key(&name) {
            return error(409, "Metric descriptor already exists.", None);
        }
        metrics.insert(name, (text("metricKind"), text("valueType")));
        drop(metrics);
        self.received
            .send_modify(|received| received.descriptors.push(descriptor.clone()));
        serve::json(200, descriptor)
    }
}

#[cfg(test)]
mod tests;
