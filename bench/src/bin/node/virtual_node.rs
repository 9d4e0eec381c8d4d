//! `kubevitals node` in the network of the cluster, with a certificate of the cluster.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::StatusCode;
use kubevitals_bench::BenchError;
use kubevitals_bench::contender::{Contender, Running};
use kubevitals_bench::https::Client;
use kubevitals_bench::sim::poll_until;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, SanType,
};

use crate::cluster::RealCluster;

/// Name of the cluster's authority.
const AUTHORITY: &str = "kubernetes";

const START_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// What a node serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Provider {
    /// The cluster's real node.
    Host,
    /// Its own pods, as processes.
    Process,
}

/// A running node.
#[derive(Debug)]
pub(crate) struct VirtualNode {
    pub(crate) process: Running,
    pub(crate) client: Client,
}

impl Provider {
    fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Process => "process",
        }
    }

    /// The name in tables.
    pub(crate) fn contender(self) -> &'static str {
        match self {
            Self::Host => "kubevitals node, host",
            Self::Process => "kubevitals node, process",
        }
    }

    /// The network of the cluster has no other program on it.
    fn port(self) -> u16 {
        match self {
            Self::Host => 10_350,
            Self::Process => 10_351,
        }
    }

    /// Name of the Node.
    pub(crate) fn node_name(self, cluster: &RealCluster) -> String {
        match self {
            Self::Host => cluster.node_name().to_owned(),
            Self::Process => "bench-process".to_owned(),
        }
    }
}

impl VirtualNode {
    /// Starts a node and waits until it answers.
    pub(crate) async fn start(
        provider: Provider,
        program: &Path,
        cluster: &RealCluster,
        folder: &Path,
    ) -> Result<Self, BenchError> {
        let name = provider.node_name(cluster);
        let (certificate, key) = serving_pair(cluster, &name, folder)?;
        let address = cluster.node_address();
        // What is executed is the program itself: its PID is that of `nsenter`.
        let mut arguments = vec![
            format!("--net={}", cluster.network_namespace().display()),
            "--".to_owned(),
            program.display().to_string(),
            "node".to_owned(),
            format!("--provider={}", provider.name()),
            format!("--kubeconfig={}", cluster.kubeconfig().display()),
            format!("--node-name={name}"),
            format!("--node-address={address}"),
            format!("--listen-address={address}:{}", provider.port()),
            format!("--tls-cert-file={}", certificate.display()),
            format!("--tls-private-key-file={}", key.display()),
            format!("--client-ca-file={}", cluster.authority().display()),
            "--admin-bind-address=127.0.0.1:0".to_owned(),
        ];
        if provider == Provider::Process {
            arguments.push(format!("--root-dir={}", folder.join("pods").display()));
            arguments.push(format!("--cgroup-root={}/bench", cluster.cgroup()));
        }
        let contender = Contender {
            name: provider.contender().to_owned(),
            program: "/usr/bin/nsenter".into(),
            arguments,
            environment: Vec::new(),
            log: folder.join(format!("node-{}.log", provider.name())),
        };
        let mut process = contender.start()?;
        let client = cluster.client(provider.port())?;
        poll_until(
            "the node to answer",
            POLL_INTERVAL,
            START_TIMEOUT,
            async || {
                process.check()?;
                let answered = client.text("/healthz").await;
                Ok(answered
                    .is_ok_and(|(status, _)| status == StatusCode::OK)
                    .then_some(()))
            },
        )
        .await?;
        Ok(Self { process, client })
    }
}

/// A serving certificate that the cluster's authority signs, as a kubelet's.
fn serving_pair(
    cluster: &RealCluster,
    name: &str,
    folder: &Path,
) -> Result<(PathBuf, PathBuf), BenchError> {
    let failed = |error: rcgen::Error| BenchError::Proc {
        path: "a certificate".to_owned(),
        problem: error.to_string(),
    };
    let key = cluster.authority().with_extension("key");
    let text = std::fs::read_to_string(&key).map_err(BenchError::file("read", &key))?;
    let mut issuer = CertificateParams::default();
    issuer.distinguished_name = DistinguishedName::new();
    let names = &mut issuer.distinguished_name;
    names.push(DnType::CommonName, AUTHORITY);
    let issuer = Issuer::new(issuer, KeyPair::from_pem(&text).map_err(failed)?);
    let mut leaf = CertificateParams::new(vec![name.to_owned()]).map_err(failed)?;
    let address = SanType::IpAddress(cluster.node_address());
    leaf.subject_alt_names.push(address);
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = leaf.signed_by(&key, &issuer).map_err(failed)?;
    let write = |file: &str, text: String| {
        let path = folder.join(file);
        let written = std::fs::write(&path, text);
        written.map_err(BenchError::file("write", &path))?;
        Ok::<_, BenchError>(path)
    };
    Ok((
        write("node.crt", certificate.pem())?,
        write("node.key", key.serialize_pem())?,
    ))
}
