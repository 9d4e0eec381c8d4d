//! One node's scrape: dial the address, verify the node's names, read a capped body, turn samples into rates.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use kubevitals_model::{
    Bytes as ByteCount, BytesSample, ContainerKey, ContainerSample, CoreNanos, CpuSample,
    FirstWindow, Timestamp, Usage, container_rate,
};
use kubevitals_promtext::{Item, Sample, parse};
use kubevitals_tls::{ClientOptions, ClientTls, PeerNames, PemSource, SelfSigned, TrustRoots};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::DemoError;
use super::metrics::{DemoMetrics, Outcome};

/// A body of 500 pods is a third of this.
const MAX_BODY_BYTES: usize = 1 << 20;

/// A kubelet on loopback that takes longer has died.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Takes samples of one node and keeps the last of each container.
#[derive(Debug)]
pub(super) struct Scraper {
    address: SocketAddr,
    tls: ClientTls,
    metrics: DemoMetrics,
    last: BTreeMap<ContainerKey, ContainerSample>,
    usage: BTreeMap<ContainerKey, Usage>,
}

/// Why a scrape failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScrapeError {
    #[error("no answer within {TIMEOUT:?}")]
    Timeout,
    #[error("cannot connect")]
    Connect(#[source] std::io::Error),
    #[error("the request failed")]
    Http(#[source] hyper::Error),
    #[error("the kubelet answered {0}")]
    Status(StatusCode),
    #[error("the body is larger than {MAX_BODY_BYTES} bytes, or broke off")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Scraper {
    /// A scraper that trusts `authority` and accepts a certificate for any of `names`.
    pub(super) fn new(
        address: SocketAddr,
        authority: &SelfSigned,
        names: &[String],
        metrics: DemoMetrics,
    ) -> Result<Self, DemoError> {
        let pem = Arc::from(authority.ca_bundle_pem().as_bytes());
        let source = PemSource::Inline {
            label: "the demo's authority",
            pem,
        };
        let roots = TrustRoots::load("kubelet authority", vec![source], SystemTime::now())?;
        let tls = ClientTls::trusting(roots, &ClientOptions::default())?
            .for_peer(PeerNames::new(names.iter().map(String::as_str))?);
        Ok(Self {
            address,
            tls,
            metrics,
            last: BTreeMap::new(),
            usage: BTreeMap::new(),
        })
    }

    /// What each container uses, as far as two samples tell.
    pub(super) fn usage(&self) -> &BTreeMap<ContainerKey, Usage> {
        &self.usage
    }

    /// Takes one sample of everything.
    pub(super) async fn scrape(&mut self) -> Result<(), ScrapeError> {
        let answer = tokio::time::timeout(TIMEOUT, self.fetch()).await;
        let body = answer
            .unwrap_or(Err(ScrapeError::Timeout))
            .inspect_err(|_| {
                self.metrics.scraped(Outcome::Failed);
            })?;
        self.metrics.scraped(Outcome::Ok);
        self.metrics.body_bytes.inc_by(body.len() as u64);
        self.take(&body);
        Ok(())
    }

    async fn fetch(&self) -> Result<Bytes, ScrapeError> {
        let stream = TcpStream::connect(self.address)
            .await
            .map_err(ScrapeError::Connect)?;
        let name = ServerName::IpAddress(self.address.ip().into());
        let stream = TlsConnector::from(self.tls.config())
            .connect(name, stream)
            .await
            .map_err(ScrapeError::Connect)?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(ScrapeError::Http)?;
        let request = Request::get("/metrics/resource")
            .header(header::HOST, self.address.to_string())
            .body(Empty::<Bytes>::new())
            .expect("a path and a socket address make a valid request");
        let answer = async {
            let answer = sender
                .send_request(request)
                .await
                .map_err(ScrapeError::Http)?;
            if answer.status() != StatusCode::OK {
                return Err(ScrapeError::Status(answer.status()));
            }
            let body = Limited::new(answer.into_body(), MAX_BODY_BYTES);
            #[expect(clippy::disallowed_methods, reason = "the body is limited above")]
            let body = body.collect().await.map_err(ScrapeError::Body)?;
            Ok(body.to_bytes())
        };
        tokio::pin!(answer);
        tokio::select! {
            answer = &mut answer => answer,
            ended = connection => {
                ended.map_err(ScrapeError::Http)?;
                answer.await
            }
        }
    }

    fn take(&mut self, body: &[u8]) {
        let mut current: BTreeMap<ContainerKey, ContainerSample> = BTreeMap::new();
        let mut bad_lines = 0;
        parse(body, |item| match item {
            Item::Sample(sample) => bad_lines += u64::from(!note(&mut current, &sample)),
            Item::Error(_) => bad_lines += 1,
            _ => {}
        });
        self.metrics.bad_lines.inc_by(bad_lines);
        self.usage = current
            .iter()
            .filter_map(|(key, sample)| {
                let usage = usage(self.last.get(key), sample)?;
                Some((key.clone(), usage))
            })
            .collect();
        self.metrics
            .containers
            .set(i64::try_from(self.usage.len()).unwrap_or(i64::MAX));
        self.last = current;
    }
}

/// Keeps a sample of a container; false if its value cannot be one.
fn note(into: &mut BTreeMap<ContainerKey, ContainerSample>, sample: &Sample<'_, '_>) -> bool {
    let [Some(namespace), Some(pod), Some(container)] =
        sample.pick(["namespace", "pod", "container"])
    else {
        return true;
    };
    let key = ContainerKey::new(namespace.value(), pod.value(), container.value());
    let at = sample.timestamp_ms.map(Timestamp::from_unix_millis);
    let kept = into.entry(key).or_default();
    match (sample.name.as_str(), at) {
        ("container_cpu_usage_seconds_total", Some(at)) => {
            let Ok(total) = CoreNanos::from_seconds(sample.value) else {
                return false;
            };
            kept.cpu = Some(CpuSample { at, total });
        }
        ("container_memory_working_set_bytes", Some(at)) => {
            let Ok(bytes) = ByteCount::from_f64(sample.value) else {
                return false;
            };
            kept.memory = Some(BytesSample { at, bytes });
        }
        ("container_start_time_seconds", _) => {
            let Ok(started) = Timestamp::from_unix_seconds(sample.value) else {
                return false;
            };
            kept.started = Some(started);
        }
        _ => {}
    }
    true
}

/// The usage between two samples; none while either half of it is unknown.
fn usage(last: Option<&ContainerSample>, current: &ContainerSample) -> Option<Usage> {
    let cpu = current.cpu?;
    let memory = current.memory?;
    // The demo's containers are old: only two samples make a rate.
    let never = FirstWindow {
        shortest: Duration::ZERO,
        longest: Duration::ZERO,
    };
    let rate = container_rate(last.and_then(|last| last.cpu), cpu, current.started, never).ok()?;
    Some(Usage {
        cpu: rate.usage,
        memory: memory.bytes,
        swap: None,
        timestamp: cpu.at,
        window: rate.window,
    })
}
