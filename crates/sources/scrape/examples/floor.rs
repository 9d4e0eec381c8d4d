//! Lower bound for the cost of a scrape: one thread, blocking sockets, nothing but the response.
//!
//! `cargo run --profile profiling -p kubevitals-scrape --example floor` starts a simulated cluster
//! of 200 nodes with 30 pods of two containers each, and prints the processor time of one thread
//! that scrapes them one after the other: for reading and decryption alone, and with decoding.
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
use kubevitals_scrape::internals::{DecodeOptions, Decoder, decode};
use kubevitals_sim::api::{Rule, User};
use kubevitals_sim::cluster::{SimCluster, SimClusterConfig};
use kubevitals_sim::objects::Resource;
use kubevitals_sim::workload::WorkloadConfig;
use kubevitals_tls::{
    ClientOptions, ClientTls, PemSource, Progress, ReceiveBuffer, TrustRoots, UnbufferedClient,
};
use rustls_pki_types::ServerName;

const NODES: usize = 200;
const ROUNDS: usize = 20;

struct Kubelet {
    tcp: TcpStream,
    tls: UnbufferedClient,
}

impl Kubelet {
    fn connect(address: &str, port: u16, tls: &ClientTls, buffer: &mut ReceiveBuffer) -> Self {
        let tcp = TcpStream::connect((address, port)).unwrap();
        tcp.set_nodelay(true).unwrap();
        let name = ServerName::try_from(address.to_owned()).unwrap();
        let mut kubelet = Self {
            tcp,
            tls: UnbufferedClient::new(tls, name).unwrap(),
        };
        buffer.clear();
        let mut output = Vec::new();
        loop {
            let progress = kubelet.tls.process(buffer, &mut output, |_| {}).unwrap();
            kubelet.tcp.write_all(&output).unwrap();
            output.clear();
            if progress == Progress::Open && buffer.is_empty() {
                return kubelet;
            }
            kubelet.receive(buffer);
        }
    }

    fn receive(&mut self, buffer: &mut ReceiveBuffer) {
        let count = self.tcp.read(buffer.spare().unwrap()).unwrap();
        assert!(count > 0, "closed");
        buffer.advance(count);
    }

    /// Reads a response with its head and returns the offset of its body.
    fn get(&mut self, request: &str, buffer: &mut ReceiveBuffer, response: &mut Vec<u8>) -> usize {
        let mut output = Vec::new();
        self.tls.encrypt(request.as_bytes(), &mut output).unwrap();
        self.tcp.write_all(&output).unwrap();
        response.clear();
        loop {
            self.receive(buffer);
            let on_data = |bytes: &[u8]| response.extend_from_slice(bytes);
            self.tls.process(buffer, &mut output, on_data).unwrap();
            if let Some((start, length)) = body(response)
                && response.len() >= start + length
            {
                return start;
            }
        }
    }
}

/// Returns the offset and the length of the body.
fn body(response: &[u8]) -> Option<(usize, usize)> {
    let start = response.windows(4).position(|part| part == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&response[..start]).to_lowercase();
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let (_, length) = head.split_once("content-length: ")?;
    let length = length.split("\r\n").next()?.parse().ok()?;
    Some((start, length))
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

fn measure(addresses: &[(String, u16)], tls: &ClientTls, token: &str) {
    let mut buffer = ReceiveBuffer::new(64 << 10);
    let mut kubelets: Vec<Kubelet> = addresses
        .iter()
        .map(|(address, port)| Kubelet::connect(address, *port, tls, &mut buffer))
        .collect();
    let request = format!(
        "GET /metrics/resource HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer {token}\r\n\r\n"
    );
    let (mut response, mut batch, mut decoder) =
        (Vec::new(), NodeBatch::default(), Decoder::default());
    for (name, decodes) in [
        ("warm-up", true),
        ("read", false),
        ("read and decode", true),
    ] {
        let (before, mut bytes) = (cpu_time(), 0);
        for _ in 0..ROUNDS {
            for kubelet in &mut kubelets {
                let start = kubelet.get(&request, &mut buffer, &mut response);
                bytes += response.len();
                if decodes {
                    let options = DecodeOptions {
                        requested_at: Timestamp::from_system_time(SystemTime::now()),
                        is_complete: true,
                        max_containers: 10_000,
                    };
                    let report = decode(&response[start..], options, &mut batch, &mut decoder);
                    assert!(report.used > 100, "{report:?}");
                }
            }
        }
        let scrapes = u32::try_from(ROUNDS * kubelets.len()).unwrap();
        let each = cpu_time().saturating_sub(before) / scrapes;
        println!(
            "{name}: {each:?} a scrape of {} bytes",
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
        label: "CA of the kubelets",
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
