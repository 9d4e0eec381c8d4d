//! Readers that all ask at once, some of whom take their time, and somebody who asks meanwhile
//! whether the server lives.

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
use kubevitals_bench::https::speak;
use kubevitals_tls::ClientTls;
use tokio::net::TcpSocket;
use tokio::sync::Barrier;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// As whom all ask: somebody without privileges, whom a server may turn away.
const USER: (&str, &str) = ("Impersonate-User", "reader");
const GROUP: (&str, &str) = ("Impersonate-Group", "sim:readers");

/// What the kernel keeps for a slow reader, so that the server feels that it is slow.
const SLOW_BUFFER: u32 = 64 << 10;

/// Where a kubelet asks from: the server's own node, which is not where API servers pass on what
/// readers ask for.
pub(crate) const KUBELET: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// Where readers ask from.
pub(crate) const READERS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// How often it is asked whether the server lives.
const PROBE_EVERY: Duration = Duration::from_millis(100);

/// A probe that takes this long has failed, whatever it says.
const PROBE_PATIENCE: Duration = Duration::from_secs(10);

/// One reader of the full list.
#[derive(Clone)]
pub(crate) struct Reader {
    pub(crate) address: SocketAddr,
    pub(crate) tls: ClientTls,
    pub(crate) path: &'static str,
    /// Bytes per second; none reads as fast as it can.
    pub(crate) pace: Option<u32>,
    /// How long it stays at most.
    pub(crate) stays: Duration,
}

/// What became of a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It has the whole list.
    Whole,
    /// It was told to come back, and perhaps when.
    TurnedAway { retry_after: Option<String> },
    /// It left, or was sent away, in the middle.
    Cut,
    /// Something else.
    Failed(String),
}

/// Answers to the question whether the server lives.
#[derive(Debug, Default)]
pub(crate) struct Liveness {
    pub(crate) latency: Histogram,
    /// The one that took longest; none if nothing was answered.
    pub(crate) slowest: Option<Steps>,
    pub(crate) failed: usize,
    pub(crate) first_failure: Option<String>,
}

/// Where the time of one answer went.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Steps {
    /// When it was asked, from the first question on.
    pub(crate) asked: Duration,
    pub(crate) connected: Duration,
    pub(crate) shaken_hands: Duration,
    pub(crate) answered: Duration,
}

impl Reader {
    /// Connects, waits for all others, asks and reads.
    pub(crate) async fn read(self, all: Arc<Barrier>) -> Ended {
        let connected = self.connect().await;
        // Also one that could not connect is waited for.
        all.wait().await;
        let deadline = Instant::now() + self.stays;
        let sender = match connected {
            Ok(sender) => sender,
            Err(error) => return Ended::Failed(error),
        };
        match timeout_at(deadline, self.exchange(sender)).await {
            Ok(Ok(ended)) => ended,
            Ok(Err(error)) => Ended::Failed(error),
            Err(_) => Ended::Cut,
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
        speak(stream, self.address, &self.tls).await
    }

    async fn exchange(
        &self,
        mut sender: hyper::client::conn::http1::SendRequest<Full<Bytes>>,
    ) -> Result<Ended, String> {
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
                return Ok(Ended::TurnedAway {
                    retry_after: after.map(str::to_owned),
                });
            }
            status => return Ok(Ended::Failed(format!("status {status}"))),
        }
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            let frame = match (frame, self.pace) {
                (Ok(frame), _) => frame,
                // A server may send away who takes too long.
                (Err(_), Some(_)) => return Ok(Ended::Cut),
                (Err(error), None) => return Err(error.to_string()),
            };
            if let (Some(pace), Some(data)) = (self.pace, frame.data_ref()) {
                let bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
                sleep(Duration::from_secs_f64(f64::from(bytes) / f64::from(pace))).await;
            }
        }
        Ok(Ended::Whole)
    }
}

/// Asks again and again on a thread of its own, over a new connection each time as a kubelet does,
/// until `done`. What this process does for the readers is then not in the way.
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
        let mut ticks = tokio::time::interval(PROBE_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let begun = Instant::now();
        while !done.load(Ordering::SeqCst) {
            ticks.tick().await;
            let asked = Instant::now();
            match timeout(PROBE_PATIENCE, livez(from, address, tls)).await {
                Ok(Ok((StatusCode::OK, steps))) => {
                    liveness.latency.record(steps.answered);
                    let slowest = liveness.slowest.map(|known| known.answered);
                    if slowest < Some(steps.answered) {
                        let asked = asked.duration_since(begun);
                        liveness.slowest = Some(Steps { asked, ..steps });
                    }
                }
                Ok(Ok((status, _))) => liveness.fail(format!("status {status}")),
                Ok(Err(error)) => liveness.fail(error),
                Err(_) => liveness.fail(format!("no answer within {PROBE_PATIENCE:?}")),
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
    let asked = Instant::now();
    let mut steps = Steps::default();
    let socket = TcpSocket::new_v4().map_err(|error| error.to_string())?;
    let bound = socket.bind(SocketAddr::new(from, 0));
    bound.map_err(|error| error.to_string())?;
    let stream = socket.connect(address).await;
    let stream = stream.map_err(|error| error.to_string())?;
    steps.connected = asked.elapsed();
    let mut sender = speak(stream, address, tls).await?;
    steps.shaken_hands = asked.elapsed();
    let request = Request::get("/livez")
        .header(HOST, address.to_string())
        .body(Full::default())
        .map_err(|error| error.to_string())?;
    let response = sender.send_request(request).await;
    let status = response.map_err(|error| error.to_string())?.status();
    steps.answered = asked.elapsed();
    Ok((status, steps))
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            asked,
            connected,
            shaken_hands,
            answered,
        } = self;
        write!(
            f,
            "{asked:.1?} after the first: connected after {connected:.1?}, hands shaken after {shaken_hands:.1?}, answered \
             after {answered:.1?}"
        )
    }
}

impl Liveness {
    /// The time within which this share was answered.
    pub(crate) fn seconds(&self, share: f64) -> Option<f64> {
        let time = self.latency.quantiles().at(share);
        time.map(|time| time.as_secs_f64())
    }

    fn fail(&mut self, why: String) {
        self.failed += 1;
        self.first_failure.get_or_insert(why);
    }
}
