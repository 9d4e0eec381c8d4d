//! What a scrape would cost at least: one thread, blocking sockets, nothing but the answer.
//!
//! `cargo run --profile profiling -p kubevitals-scrape --example floor` starts a simulated cluster
//! of 200 nodes with 30 pods of two containers each, and prints the processor time of one thread
//! that asks them in turns: as long as it only reads and decrypts, and with the decoding of what it
//! has read.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a tool that should fail on the spot and whose output is the point"
)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, SystemTime};

use kubevitals_model::{NodeBatch, Timestamp};
use kubevitals_scrape::{Decoder, Reading, decode};
use kubevitals_sim::api::{Rule, User};
use kubevitals_sim::cluster::{SimCluster, SimClusterConfig};
use kubevitals_sim::objects::Resource;
use kubevitals_sim::workload::WorkloadConfig;
use kubevitals_tls::{
    ClientOptions, ClientRecords, ClientTls, Inbox, PemSource, Progress, TrustRoots,
};
use rustls_pki_types::ServerName;

const NODES: usize = 200;
const ROUNDS: usize = 20;

struct Kubelet {
    tcp: TcpStream,
    tls: ClientRecords,
}

impl Kubelet {
    fn connect(address: &str, port: u16, tls: &ClientTls, inbox: &mut Inbox) -> Self {
        let tcp = TcpStream::connect((address, port)).unwrap();
        tcp.set_nodelay(true).unwrap();
        let name = ServerName::try_from(address.to_owned()).unwrap();
        let mut kubelet = Self {
            tcp,
            tls: ClientRecords::new(tls, name).unwrap(),
        };
        inbox.clear();
        let mut outbox = Vec::new();
        loop {
            let progress = kubelet.tls.take_in(inbox, &mut outbox, |_| {}).unwrap();
            kubelet.tcp.write_all(&outbox).unwrap();
            outbox.clear();
            if progress == Progress::Open && inbox.is_empty() {
                return kubelet;
            }
            kubelet.receive(inbox);
        }
    }

    fn receive(&mut self, inbox: &mut Inbox) {
        let count = self.tcp.read(inbox.room().unwrap()).unwrap();
        assert!(count > 0, "closed");
        inbox.filled(count);
    }

    /// Reads an answer, with its head, and gives where its body begins.
    fn ask(&mut self, request: &str, inbox: &mut Inbox, answer: &mut Vec<u8>) -> usize {
        let mut outbox = Vec::new();
        self.tls.say(request.as_bytes(), &mut outbox).unwrap();
        self.tcp.write_all(&outbox).unwrap();
        answer.clear();
        loop {
            self.receive(inbox);
            let said = |bytes: &[u8]| answer.extend_from_slice(bytes);
            self.tls.take_in(inbox, &mut outbox, said).unwrap();
            if let Some((start, length)) = body(answer)
                && answer.len() >= start + length
            {
                return start;
            }
        }
    }
}

/// Where the body begins, and how long it is.
fn body(answer: &[u8]) -> Option<(usize, usize)> {
    let start = answer.windows(4).position(|part| part == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&answer[..start]).to_lowercase();
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let (_, length) = head.split_once("content-length: ")?;
    let length = length.split("\r\n").next()?.parse().ok()?;
    Some((start, length))
}

/// The processor time of this thread.
fn spent() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

fn measure(addresses: &[(String, u16)], tls: &ClientTls, token: &str) {
    let mut inbox = Inbox::new(64 << 10);
    let mut kubelets: Vec<Kubelet> = addresses
        .iter()
        .map(|(address, port)| Kubelet::connect(address, *port, tls, &mut inbox))
        .collect();
    let request = format!(
        "GET /metrics/resource HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer {token}\r\n\r\n"
    );
    let (mut answer, mut batch, mut decoder) =
        (Vec::new(), NodeBatch::default(), Decoder::default());
    for (what, decodes) in [
        ("warm-up", true),
        ("read", false),
        ("read and decode", true),
    ] {
        let (before, mut bytes) = (spent(), 0);
        for _ in 0..ROUNDS {
            for kubelet in &mut kubelets {
                let start = kubelet.ask(&request, &mut inbox, &mut answer);
                bytes += answer.len();
                if decodes {
                    let reading = Reading {
                        asked: Timestamp::from_system_time(SystemTime::now()),
                        is_complete: true,
                        max_containers: 10_000,
                    };
                    let report = decode(&answer[start..], reading, &mut batch, &mut decoder);
                    assert!(report.used > 100, "{report:?}");
                }
            }
        }
        let scrapes = u32::try_from(ROUNDS * kubelets.len()).unwrap();
        let each = spent().saturating_sub(before) / scrapes;
        println!(
            "{what}: {each:?} a scrape of {} bytes",
            bytes / scrapes as usize
        );
    }
}

#[tokio::main]
async fn main() {
    kubevitals_tls::install_crypto_provider();
    let config = SimClusterConfig {
        nodes: NODES,
        workload: WorkloadConfig {
            pods_per_node: 30,
            containers_per_pod: 2,
            ..WorkloadConfig::default()
        },
        ..SimClusterConfig::default()
    };
    let cluster = SimCluster::start(config, drop).await.unwrap();
    let api = cluster.api();
    let token = api.issue_token(User::new("floor", []), None).unwrap();
    api.allow(Rule::for_user("floor", ["get"], "", ["nodes/metrics"]));
    let source = PemSource::Inline {
        label: "authority of the kubelets",
        pem: cluster.fleet().authority_pem().as_bytes().into(),
    };
    let roots = TrustRoots::load("kubelets", vec![source], SystemTime::now()).unwrap();
    let tls = ClientTls::trusting(roots, &ClientOptions::default()).unwrap();
    let addresses: Vec<(String, u16)> = (0..NODES)
        .map(|number| {
            let node = api
                .object(Resource::Nodes, None, &format!("node-{number:05}"))
                .unwrap();
            let address = node["status"]["addresses"][0]["address"]
                .as_str()
                .unwrap()
                .to_owned();
            let port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64();
            (address, u16::try_from(port.unwrap()).unwrap())
        })
        .collect();
    let measured = std::thread::spawn(move || measure(&addresses, &tls, &token));
    tokio::task::spawn_blocking(move || measured.join().unwrap())
        .await
        .unwrap();
    cluster.shutdown().await;
}
