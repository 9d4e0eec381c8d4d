//! What a provider can do: one trait for each capability.
//!
//! A future that is dropped is cancelled: the client has left. A provider then ends what the
//! request started, such as the process of an exec.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use k8s_openapi::api::core::v1::Pod;
use kubevitals_model::node_stats::NodeStats;
use kubevitals_model::{PodKey, Timestamp, Uid};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use crate::error::ProviderError;

/// The response of a provider.
pub type ProviderFuture<'a, T> = BoxFuture<'a, Result<T, ProviderError>>;

/// The capabilities of a provider. What is absent responds with 501.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Provider {
    /// `/pods`: the pods that the API server has bound to the node.
    pub pods: Option<Arc<dyn PodLister>>,
    /// `/runningpods/`: the pods that the provider runs.
    pub running_pods: Option<Arc<dyn PodLister>>,
    /// `/metrics/resource` as metric families; it takes precedence over `stats`.
    pub resource_metrics: Option<Arc<dyn ResourceMetrics>>,
    /// `/metrics/resource`, `/stats/summary` and `/metrics/cadvisor` of one sample.
    pub stats: Option<Arc<dyn Stats>>,
    /// `/metrics/probes` as metric families.
    pub probe_metrics: Option<Arc<dyn ResourceMetrics>>,
    /// `/containerLogs`.
    pub logs: Option<Arc<dyn ContainerLogs>>,
    /// `/exec` and `/run`.
    pub exec: Option<Arc<dyn Exec>>,
    /// `/attach`.
    pub attach: Option<Arc<dyn Attach>>,
    /// `/portForward`.
    pub port_forward: Option<Arc<dyn PortForward>>,
}

/// Lists pods.
pub trait PodLister: Send + Sync + 'static {
    /// Returns all pods.
    fn pods(&self) -> ProviderFuture<'_, Vec<Arc<Pod>>>;
}

/// Metric families in the order in which they are written, as Virtual Kubelet's
/// `GetMetricsResource` returns them.
pub trait ResourceMetrics: Send + Sync + 'static {
    /// Returns the families.
    fn families(&self) -> ProviderFuture<'_, Vec<MetricFamily>>;
}

/// Statistics of the node, its pods and containers.
pub trait Stats: Send + Sync + 'static {
    /// Returns the newest sample. With `only_cpu_and_memory` file systems and networks may be left
    /// out.
    fn stats(&self, only_cpu_and_memory: bool) -> ProviderFuture<'_, Arc<NodeStats>>;
}

/// Logs of containers.
pub trait ContainerLogs: Send + Sync + 'static {
    /// Opens a log. An error is a response; later errors end the stream.
    fn logs(
        &self,
        container: ContainerTarget,
        options: LogOptions,
    ) -> ProviderFuture<'_, BoxStream<'static, io::Result<Bytes>>>;
}

/// Commands in containers.
pub trait Exec: Send + Sync + 'static {
    /// Checks the request before the connection is upgraded. The session runs the command.
    fn exec(&self, request: ExecRequest) -> ProviderFuture<'_, Session>;
}

/// Attaching to the main process of a container.
pub trait Attach: Send + Sync + 'static {
    /// Checks the request before the connection is upgraded. The session copies the streams. The
    /// terminal is that of the container, whatever the request says.
    fn attach(&self, request: AttachRequest) -> ProviderFuture<'_, Session>;
}

/// Connections to ports of pods.
pub trait PortForward: Send + Sync + 'static {
    /// Checks the request before the connection is upgraded.
    fn port_forward(&self, pod: PodTarget) -> ProviderFuture<'_, Arc<dyn PortDialer>>;
}

/// Connects to ports of one pod.
pub trait PortDialer: Send + Sync + 'static {
    /// Connects to a port.
    fn dial(&self, port: u16) -> ProviderFuture<'_, Box<dyn Duplex>>;
}

/// A connection in both directions.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Duplex for T {}

/// Runs over the streams of an upgraded connection, and returns how the command ended.
pub type Session =
    Box<dyn FnOnce(Streams) -> BoxFuture<'static, Result<ExitStatus, ProviderError>> + Send>;

/// The pod of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodTarget {
    pub key: PodKey,
    /// Set in requests that name the UID; another pod of the same name is then not found.
    pub uid: Option<Uid>,
}

/// The container of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerTarget {
    pub pod: PodTarget,
    pub container: String,
}

/// A command to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecRequest {
    pub target: ContainerTarget,
    /// At least the program.
    pub command: Vec<String>,
    pub streams: StreamOptions,
}

/// A container to attach to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachRequest {
    pub target: ContainerTarget,
    pub streams: StreamOptions,
}

/// The streams that a client asks for; at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the four parameters of the request"
)]
pub struct StreamOptions {
    pub stdin: bool,
    pub stdout: bool,
    /// Never with a terminal.
    pub stderr: bool,
    pub tty: bool,
}

/// The streams of a session. End of file on `stdin` is the client's half-close.
pub struct Streams {
    pub stdin: Option<Box<dyn AsyncRead + Send + Unpin>>,
    pub stdout: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    pub stderr: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// Sizes of the terminal, the newest last; closed without one.
    pub resize: mpsc::Receiver<TerminalSize>,
}

/// The size of a terminal in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    pub width: u16,
    pub height: u16,
}

/// How a command ended: its exit code, or 128 and the number of the signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExitStatus {
    pub code: u8,
}

/// The options of `/containerLogs`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogOptions {
    pub follow: bool,
    /// The log of the previous instance of the container.
    pub previous: bool,
    pub timestamps: bool,
    /// At most this many lines from the end; `Some(0)` is none.
    pub tail_lines: Option<u64>,
    /// At most this many bytes, timestamps included.
    pub limit_bytes: Option<u64>,
    /// Only lines from this time on; `sinceSeconds` is converted to it.
    pub since: Option<Timestamp>,
    pub stream: LogStream,
}

/// The stream of `/containerLogs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogStream {
    #[default]
    All,
    Stdout,
    Stderr,
}

/// A metric family, as Prometheus' `MetricFamily`.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricFamily {
    pub name: String,
    pub help: String,
    pub kind: MetricKind,
    pub samples: Vec<MetricSample>,
}

/// The type of a metric family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    Counter,
    Gauge,
    Untyped,
}

/// One series of a metric family.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricSample {
    /// Names and values, in the order in which they are written.
    pub labels: Vec<(String, String)>,
    pub value: f64,
    /// The time at which the value was read, if it is stated.
    pub timestamp: Option<Timestamp>,
}
