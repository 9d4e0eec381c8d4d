//! Readers that all send a request at once, some of which read slowly, and liveness probes
//! meanwhile.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HOST, RETRY_AFTER};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use kubevitals_bench::histogram::Histogram;
use kubevitals_bench::https::connect_http;
use kubevitals_tls::ClientTls;
use tokio::net::TcpSocket;
use tokio::sync::Barrier;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Identity of all readers: without privileges, so that a server may reject them.
const USER: (&str, &str) = ("Impersonate-User", "reader");
const GROUP: (&str, &str) = ("Impersonate-Group", "sim:readers");

/// Receive buffer of a slow reader, small enough that the server's writes block.
const SLOW_BUFFER: u32 = 64 << 10;

/// Source address of a kubelet's probes: the server's own node, unlike that of API servers, which
/// proxy the requests of readers.
pub(crate) const KUBELET: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// Source address of readers.
pub(crate) const READERS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Interval of liveness probes.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);

/// Timeout of a liveness probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// One reader of the full list.
#[derive(Clone)]
pub(crate) struct Reader {
    pub(crate) address: SocketAddr,
    pub(crate) tls: ClientTls,
    pub(crate) path: &'static str,
    /// Bytes per second; none reads as fast as it can.
    pub(crate) pace: Option<u32>,
    /// Maximum duration of the read.
    pub(crate) max_duration: Duration,
}

/// Outcome of a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It has the whole list.
    Complete,
    /// The server responded with 429.
    Rejected {
        retry_after: Option<String>,
    },
    /// It or the server disconnected before the end.
    Aborted,
    Failed(String),
}

/// Results of liveness probes.
#[derive(Debug, Default)]
pub(crate) struct Liveness {
    pub(crate) latency: Histogram,
    /// The slowest successful probe.
    pub(crate) slowest: Option<Steps>,
    pub(crate) failed: usize,
    pub(crate) first_failure: Option<String>,
}

/// Times of the steps of one probe.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Steps {
    /// Time of the request since the first probe.
    pub(crate) sent: Duration,
    pub(crate) connected: Duration,
    pub(crate) handshaken: Duration,
    pub(crate) responded: Duration,
}

impl Reader {
    /// Connects, waits for all other readers, sends the request and reads the response.
    pub(crate) async fn read(self, all: Arc<Barrier>) -> Outcome {
        let connected = self.connect().await;
        // A reader that could not connect takes part in the barrier too.
        all.wait().await;
        let deadline = Instant::now() + self.max_duration;
        let sender = match connected {
            Ok(sender) => sender,
            Err(error) => return Outcome::Failed(error),
        };
        match timeout_at(deadline, self.exchange(sender)).await {
            Ok(Ok(outcomes)) => outcomes,
            Ok(Err(error)) => Outcome::Failed(error),
            Err(_) => Outcome::Aborted,
        }
    }

    async fn connect(
        &self,
    ) -> Result<hyper::client::conn::http1::SendRequest<Full<Bytes>>, String> {
        let socket = TcpSocket::new_v4().map_err(|error| error.to_string())?;
        if self.pace.is_some() {
            socket
                .set_recv_buffer_size(SLOW_BUFFER)
                .map_err(|error| error.to_string())?;
        }
        let stream = socket.connect(self.address).await;
        let stream = stream.map_err(|error| error.to_string())?;
        connect_http(stream, self.address, &self.tls).await
    }

    async fn exchange(
        &self,
        mut sender: hyper::client::conn::http1::SendRequest<Full<Bytes>>,
    ) -> Result<Outcome, String> {
        let request = Request::get(self.path)
            .header(HOST, self.address.to_string())
            .header(ACCEPT, "application/json")
            .header(USER.0, USER.1)
            .header(GROUP.0, GROUP.1)
            .body(Full::default())
            .map_err(|error| error.to_string())?;
        let response = sender.send_request(request).await;
        let response = response.map_err(|error| error.to_string())?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::TOO_MANY_REQUESTS => {
                let after = response.headers().get(RETRY_AFTER);
                let after = after.and_then(|value| value.to_str().ok());
                return Ok(Outcome::Rejected {
                    retry_after: after.map(str::to_owned),
                });
            }
            status => return Ok(Outcome::Failed(format!("status {status}"))),
        }
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            let frame = match (frame, self.pace) {
                (Ok(frame), _) => frame,
                // A server may disconnect a slow reader.
                (Err(_), Some(_)) => return Ok(Outcome::Aborted),
                (Err(error), None) => return Err(error.to_string()),
            };
            if let (Some(pace), Some(data)) = (self.pace, frame.data_ref()) {
                let bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
                sleep(Duration::from_secs_f64(f64::from(bytes) / f64::from(pace))).await;
            }
        }
        Ok(Outcome::Complete)
    }
}

/// Probes on its own thread, over a new connection each time as a kubelet does, until `done`. Work
/// of this process for the readers then does not delay it.
pub(crate) fn probe(
    from: IpAddr,
    address: SocketAddr,
    tls: &ClientTls,
    done: &AtomicBool,
) -> Liveness {
    let mut liveness = Liveness::default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let Ok(runtime) = runtime else {
        liveness.fail("no runtime for the probe".to_owned());
        return liveness;
    };
    runtime.block_on(async {
        let mut ticks = tokio::time::interval(PROBE_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let started = Instant::now();
        while !done.load(Ordering::SeqCst) {
            ticks.tick().await;
            let sent = Instant::now();
            match timeout(PROBE_TIMEOUT, livez(from, address, tls)).await {
                Ok(Ok((StatusCode::OK, steps))) => {
                    liveness.latency.record(steps.responded);
                    let slowest = liveness.slowest.map(|known| known.responded);
                    if slowest < Some(steps.responded) {
                        let sent = sent.duration_since(started);
                        liveness.slowest = Some(Steps { sent, ..steps });
                    }
                }
                Ok(Ok((status, _))) => liveness.fail(format!("status {status}")),
                Ok(Err(error)) => liveness.fail(error),
                Err(_) => liveness.fail(format!("no response within {PROBE_TIMEOUT:?}")),
            }
        }
    });
    liveness
}

async fn livez(
    from: IpAddr,
    address: SocketAddr,
    tls: &ClientTls,
) -> Result<(StatusCode, Steps), String> {
    let sent = Instant::now();
    let mut steps = Steps::default();
    let socket = TcpSocket::new_v4().map_err(|error| error.to_string())?;
    let bound = socket.bind(SocketAddr::new(from, 0));
    bound.map_err(|error| error.to_string())?;
    let stream = socket.connect(address).await;
    let stream = stream.map_err(|error| error.to_string())?;
    steps.connected = sent.elapsed();
    let mut sender = connect_http(stream, address, tls).await?;
    steps.handshaken = sent.elapsed();
    let request = Request::get("/livez")
        .header(HOST, address.to_string())
        .body(Full::default())
        .map_err(|error| error.to_string())?;
    let response = sender.send_request(request).await;
    let status = response.map_err(|error| error.to_string())?.status();
    steps.responded = sent.elapsed();
    Ok((status, steps))
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            sent,
            connected,
            handshaken,
            responded,
        } = self;
        write!(
            f,
            "connected after {connected:.1?}, TLS established after {handshaken:.1?}, response after {responded:.1?} \
             (sent {sent:.1?} after the first)"
        )
    }
}

impl Liveness {
    /// Returns the latency that this share of probes did not exceed.
    pub(crate) fn seconds(&self, share: f64) -> Option<f64> {
        let time = self.latency.quantiles().at(share);
        time.map(|time| time.as_secs_f64())
    }

    fn fail(&mut self, reason: String) {
        self.failed += 1;
        self.first_failure.get_or_insert(reason);
    }
}
