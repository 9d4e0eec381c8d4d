//! A real API server whose nodes and pods are those of a simulated cluster: etcd and kube-apiserver
//! as processes, with the objects copied into them, and the simulated kubelets serving metrics of
//! the nodes.
//!
//! The watch side of a server is half its memory, and a real API server sends fields that the
//! simulated one omits, such as `managedFields`. Both trust the simulated cluster's CA, so that one
//! identity is valid for API server, kubelets and servers alike.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use futures_util::{StreamExt, TryStreamExt};
use http::{Method, StatusCode};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType};
use serde_json::Value;

use super::testbed::free_address;
use crate::BenchError;
use crate::contender::{Contender, Running};
use crate::https::Client;
use crate::kubeconfig::Kubeconfig;
use crate::session::print_line;
use crate::sim::{SimProcess, poll_until};

/// Maximum time until the API server is ready.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// Maximum writes in flight.
const MAX_WRITES: usize = 24;

/// Objects per page of a list.
const PAGE_SIZE: u32 = 500;

/// Paths of a real control plane
#[derive(Debug, Clone, Args)]
pub struct ControlPlaneFlags {
    /// Path of etcd, for --control-plane real
    #[arg(long, value_name = "FILE", env = "KUBEVITALS_ETCD")]
    pub etcd: Option<PathBuf>,

    /// Path of kube-apiserver, for --control-plane real
    #[arg(long, value_name = "FILE", env = "KUBEVITALS_KUBE_APISERVER")]
    pub kube_apiserver: Option<PathBuf>,
}

/// A running etcd and kube-apiserver.
#[derive(Debug)]
pub struct ControlPlane {
    etcd: Running,
    api_server: Running,
    kubeconfig: PathBuf,
    api: Client,
}

impl ControlPlaneFlags {
    /// Returns both paths, or an error that names the flags.
    fn programs(&self) -> Result<(&Path, &Path), BenchError> {
        let both = self.etcd.as_deref().zip(self.kube_apiserver.as_deref());
        both.ok_or_else(|| {
            BenchError::NoContender(
                "--control-plane real needs --etcd and --kube-apiserver: `cargo xtask bench` sets them"
                    .to_owned(),
            )
        })
    }
}

impl ControlPlane {
    /// Starts etcd and an API server that trusts the simulated cluster's CA, and copies all nodes
    /// and pods.
    pub async fn start(
        flags: &ControlPlaneFlags,
        sim: &SimProcess,
        scratch: &Path,
    ) -> Result<Self, BenchError> {
        let (etcd, kube_apiserver) = flags.programs()?;
        let folder = scratch.join("control-plane");
        std::fs::create_dir_all(&folder).map_err(BenchError::file("create", &folder))?;
        let (clients, peers, address) = (
            free_address().await?,
            free_address().await?,
            free_address().await?,
        );
        let authority = Serving::write(&folder, address)?;
        let ca = folder.join("clients-ca.crt");
        write(&ca, sim.identity.authority_pem())?;
        let kubeconfig = folder.join("admin.kubeconfig");
        let text = sim.identity.for_server(address, authority.as_bytes());
        write(&kubeconfig, text.as_bytes())?;

        let etcd = contender("etcd", etcd, etcd_flags(&folder, clients, peers), scratch).start()?;
        let flags = api_server_flags(&folder, clients, address);
        let mut api_server = contender("kube-apiserver", kube_apiserver, flags, scratch).start()?;
        let identity = Kubeconfig::read(&kubeconfig)?;
        let api = Client::new(address, identity.api_tls()?, MAX_WRITES);
        poll_until(
            "a ready API server",
            Duration::from_millis(200),
            START_TIMEOUT,
            async || {
                api_server.check()?;
                let ready = api.text("/readyz").await;
                Ok(matches!(ready, Ok((StatusCode::OK, _))).then_some(()))
            },
        )
        .await?;
        let control_plane = Self {
            etcd,
            api_server,
            kubeconfig,
            api,
        };
        control_plane.copy(sim).await?;
        Ok(control_plane)
    }

    /// Returns the path of an administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Returns the processor time that etcd and the API server have used.
    pub fn cpu(&self) -> Result<Duration, BenchError> {
        Ok(self.etcd.cpu()? + self.api_server.cpu()?)
    }

    /// Stops both.
    pub async fn stop(self) {
        self.api_server.stop().await;
        self.etcd.stop().await;
    }

    async fn copy(&self, sim: &SimProcess) -> Result<(), BenchError> {
        for namespace in list(&sim.api, "/api/v1/namespaces").await? {
            // Those that every cluster has exist already.
            self.create("/api/v1/namespaces", &fresh(namespace)).await?;
        }
        let nodes = list(&sim.api, "/api/v1/nodes").await?;
        let pods = list(&sim.api, "/api/v1/pods").await?;
        print_line(&format!(
            "copying {} nodes and {} pods into a real API server",
            nodes.len(),
            pods.len()
        ));
        futures_util::stream::iter(nodes)
            .map(async |node| self.create("/api/v1/nodes", &fresh(node)).await)
            .buffer_unordered(MAX_WRITES)
            .try_for_each(async |_| Ok(()))
            .await?;
        futures_util::stream::iter(pods)
            .map(async |pod| self.create_pod(pod).await)
            .buffer_unordered(MAX_WRITES)
            .try_for_each(async |()| Ok(()))
            .await
    }

    /// A pod is created without a status, which its kubelet would write afterwards.
    async fn create_pod(&self, mut pod: Value) -> Result<(), BenchError> {
        let status = pod.get_mut("status").map(Value::take);
        let namespace = pod.pointer("/metadata/namespace").and_then(Value::as_str);
        let name = pod.pointer("/metadata/name").and_then(Value::as_str);
        let path = format!("/api/v1/namespaces/{}/pods", namespace.unwrap_or("default"));
        let status_path = format!("{path}/{}/status", name.unwrap_or_default());
        let Some(mut created) = self.create(&path, &fresh(pod)).await? else {
            return Ok(());
        };
        if let Value::Object(created) = &mut created {
            created.insert("status".to_owned(), status.unwrap_or_default());
        }
        let put = self.api.send(Method::PUT, &status_path, Some(&created));
        match put.await? {
            (StatusCode::OK, _) => Ok(()),
            (status, body) => Err(BenchError::unexpected_status(&status_path, status, &body)),
        }
    }

    /// Creates an object, and returns it as the API server stored it; none if it existed.
    async fn create(&self, path: &str, object: &Value) -> Result<Option<Value>, BenchError> {
        match self.api.send(Method::POST, path, Some(object)).await? {
            (StatusCode::CREATED, created) => Ok(Some(created)),
            (StatusCode::CONFLICT, _) => Ok(None),
            (status, body) => Err(BenchError::unexpected_status(path, status, &body)),
        }
    }
}

/// The CA and the serving certificate of the API server.
struct Serving;

impl Serving {
    /// Writes certificate and key, and returns the CA as PEM.
    fn write(folder: &Path, address: SocketAddr) -> Result<String, BenchError> {
        let failed = |error: rcgen::Error| BenchError::Proc {
            path: "a certificate".to_owned(),
            problem: error.to_string(),
        };
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        authority
            .distinguished_name
            .push(rcgen::DnType::CommonName, "kubevitals-bench");
        let authority_key = KeyPair::generate().map_err(failed)?;
        let authority_pem = authority.self_signed(&authority_key).map_err(failed)?.pem();
        let issuer = Issuer::new(authority, authority_key);
        let mut leaf = CertificateParams::default();
        leaf.subject_alt_names = vec![SanType::IpAddress(address.ip())];
        let key = KeyPair::generate().map_err(failed)?;
        let leaf = leaf.signed_by(&key, &issuer).map_err(failed)?;
        write(&folder.join("apiserver.crt"), leaf.pem().as_bytes())?;
        write(
            &folder.join("apiserver.key"),
            key.serialize_pem().as_bytes(),
        )?;
        Ok(authority_pem)
    }
}

fn contender(name: &str, program: &Path, arguments: Vec<String>, scratch: &Path) -> Contender {
    Contender {
        name: name.to_owned(),
        program: program.to_owned(),
        arguments,
        environment: Vec::new(),
        log: scratch.join(format!("{name}.log")),
    }
}

fn etcd_flags(folder: &Path, clients: SocketAddr, peers: SocketAddr) -> Vec<String> {
    vec![
        format!("--data-dir={}", folder.join("etcd").display()),
        format!("--listen-client-urls=http://{clients}"),
        format!("--advertise-client-urls=http://{clients}"),
        format!("--listen-peer-urls=http://{peers}"),
        format!("--initial-advertise-peer-urls=http://{peers}"),
        format!("--initial-cluster=default=http://{peers}"),
        // No data has to survive a power failure.
        "--unsafe-no-fsync".to_owned(),
    ]
}

fn api_server_flags(folder: &Path, etcd: SocketAddr, address: SocketAddr) -> Vec<String> {
    let file = |name: &str| folder.join(name).display().to_string();
    vec![
        format!("--etcd-servers=http://{etcd}"),
        format!("--bind-address={}", address.ip()),
        format!("--secure-port={}", address.port()),
        "--advertise-address=192.0.2.1".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        "--service-cluster-ip-range=198.51.100.0/24".to_owned(),
        format!("--cert-dir={}", file("certificates")),
        format!("--tls-cert-file={}", file("apiserver.crt")),
        format!("--tls-private-key-file={}", file("apiserver.key")),
        format!("--client-ca-file={}", file("clients-ca.crt")),
        "--authorization-mode=RBAC".to_owned(),
        // No controller creates service accounts, and nodes are ready without a controller.
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        // Public keys are also read from certificates.
        format!("--service-account-key-file={}", file("apiserver.crt")),
        format!(
            "--service-account-signing-key-file={}",
            file("apiserver.key")
        ),
        "--shutdown-watch-termination-grace-period=1s".to_owned(),
    ]
}

/// Lists all objects of a resource, page by page.
async fn list(api: &Client, path: &str) -> Result<Vec<Value>, BenchError> {
    let mut all = Vec::new();
    let mut next = String::new();
    loop {
        let page = format!("{path}?limit={PAGE_SIZE}{next}");
        let (status, mut response) = api.json(&page).await?;
        if status != StatusCode::OK {
            return Err(BenchError::unexpected_status(path, status, &response));
        }
        if let Some(Value::Array(items)) = response.get_mut("items").map(Value::take) {
            all.extend(items);
        }
        match response
            .pointer("/metadata/continue")
            .and_then(Value::as_str)
        {
            Some(token) if !token.is_empty() => next = format!("&continue={}", escaped(token)),
            _ => return Ok(all),
        }
    }
}

/// Removes the fields that the API server sets.
fn fresh(mut object: Value) -> Value {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        for given in [
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "generation",
            "managedFields",
        ] {
            metadata.remove(given);
        }
    }
    object
}

/// Escapes a continue token for a query: base64 has three reserved characters.
fn escaped(token: &str) -> String {
    token
        .replace('+', "%2B")
        .replace('/', "%2F")
        .replace('=', "%3D")
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), BenchError> {
    std::fs::write(path, bytes).map_err(BenchError::file("write", path))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_that_the_server_sets_are_removed() {
        let object = json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "7", "labels": {}}, "spec": {}});
        assert_eq!(
            fresh(object),
            json!({"metadata": {"name": "a", "labels": {}}, "spec": {}})
        );
        assert_eq!(escaped("a+b/c=="), "a%2Bb%2Fc%3D%3D");
    }

    #[test]
    fn a_missing_program_is_named() {
        let flags = ControlPlaneFlags {
            etcd: Some("/bin/etcd".into()),
            kube_apiserver: None,
        };
        let error = flags.programs().unwrap_err().to_string();
        assert!(error.contains("--kube-apiserver"), "{error}");
    }
}
