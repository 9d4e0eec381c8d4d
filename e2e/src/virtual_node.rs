//! `kubevitals node` as a process of a test, beside the real kubelet.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::DeleteParams;
use kubevitals_tls::ClientTls;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair,
};
use serde_json::{Value, json};

use crate::access::{Access, kubeconfig_of};
use crate::aggregation::free_port;
use crate::background::Background;
use crate::cluster::Cluster;
use crate::error::E2eError;
use crate::kubelet::{KubeletResponse, get_once, verified_by};
use crate::manifest::{LEASES, Manifest};
use crate::namespace::TestNamespace;
use crate::report;
use crate::run::OWNER_LABEL;
use crate::server::{CHECK_INTERVAL, end_of};
use crate::wait::{DEADLINE, has_condition, wait_for};

/// The account of a virtual node in the manifest.
const ACCOUNT: &str = "kubevitals-node";

/// The name of the cluster's authority.
const AUTHORITY: &str = "kubernetes";

/// A node that registers itself in the cluster of the test. Its processes are in the cluster's
/// cgroup, so that none is left when the cluster is taken down.
#[derive(Debug)]
pub struct VirtualNode {
    name: String,
    listen: SocketAddr,
    program: PathBuf,
    arguments: Vec<String>,
    log: PathBuf,
    process: Background,
    tls: ClientTls,
    /// The cluster of a Node that is deleted with this value: a test that fails leaves none, since
    /// its pods would keep their namespace and other tests would find a node without metrics.
    registered_in: Option<Cluster>,
}

impl VirtualNode {
    /// Starts a node with the rights of the shipped manifest, and waits until it is ready.
    pub async fn start(
        namespace: &TestNamespace,
        provider: &str,
        flags: &[String],
    ) -> Result<Self, E2eError> {
        let mut node = Self::launch(namespace, provider, flags).await?;
        node.wait(namespace, |node| has_condition(node, "Ready"))
            .await?;
        Ok(node)
    }

    /// Starts a node that has the identity of one, requests its serving certificate from the
    /// cluster, and waits until it is ready.
    pub async fn start_as_node(
        namespace: &TestNamespace,
        provider: &str,
        flags: &[String],
    ) -> Result<Self, E2eError> {
        let name = format!("{}-{provider}", namespace.name());
        let kubeconfig = node_kubeconfig(namespace, &name)?;
        let serving = vec!["--rotate-server-certificates".to_owned()];
        let mut node = Self::run(namespace, provider, flags, name, &kubeconfig, |_, _| {
            Ok(serving)
        })?;
        node.wait(namespace, |node| has_condition(node, "Ready"))
            .await?;
        Ok(node)
    }

    /// Starts the reader of the cluster's real node, and waits until it responds.
    pub async fn start_on_host(namespace: &TestNamespace) -> Result<Self, E2eError> {
        let mut node = Self::launch(namespace, "host", &[]).await?;
        let responds = async {
            let mut ticks = tokio::time::interval(CHECK_INTERVAL);
            while node.get("/healthz", None).await.is_err() {
                ticks.tick().await;
            }
        };
        // It has a test's deadline: each request has one too.
        if tokio::time::timeout(DEADLINE, responds).await.is_err() {
            node.process.must_run()?;
        }
        Ok(node)
    }

    async fn launch(
        namespace: &TestNamespace,
        provider: &str,
        flags: &[String],
    ) -> Result<Self, E2eError> {
        let cluster = namespace.cluster();
        let manifest = Manifest::read(&format!("../e2e/snapshots/chart/node-{provider}.yaml"))?;
        let access = Access::of_manifest(namespace, &manifest, ACCOUNT).await?;
        let name = match provider {
            "host" => cluster.node_name().to_owned(),
            _ => format!("{}-{provider}", namespace.name()),
        };
        let kubeconfig = access.kubeconfig(namespace)?;
        Self::run(
            namespace,
            provider,
            flags,
            name,
            &kubeconfig,
            |name, listen| {
                let (certificate, key) = serving_pair(namespace, name, listen)?;
                Ok(vec![
                    format!("--tls-cert-file={}", certificate.display()),
                    format!("--tls-private-key-file={}", key.display()),
                ])
            },
        )
    }

    fn run(
        namespace: &TestNamespace,
        provider: &str,
        flags: &[String],
        name: String,
        kubeconfig: &Path,
        serving: impl FnOnce(&str, SocketAddr) -> Result<Vec<String>, E2eError>,
    ) -> Result<Self, E2eError> {
        let cluster = namespace.cluster();
        let address = cluster.node_address();
        let listen = SocketAddr::new(address, free_port(address)?);
        let mut arguments = vec![
            "node".to_owned(),
            format!("--provider={provider}"),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--node-name={name}"),
            format!("--node-address={address}"),
            format!("--listen-address={listen}"),
            format!("--client-ca-file={}", cluster.authority().display()),
            "--authentication-token-webhook".to_owned(),
            "--admin-bind-address=127.0.0.1:0".to_owned(),
        ];
        arguments.extend(serving(&name, listen)?);
        arguments.extend(flags.iter().cloned());
        let log = namespace.folder().join(format!("{provider}-node.log"));
        let program = cluster.program("kubevitals")?;
        let process = Background::start(&program, &arguments, &log)?;
        Ok(Self {
            registered_in: (provider != "host").then(|| cluster.clone()),
            tls: verified_by(cluster, &[&name, &address.to_string()])?,
            name,
            listen,
            program,
            arguments,
            log,
            process,
        })
    }

    /// The name of the Node.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All that it has logged since it was last started.
    pub fn log(&self) -> String {
        self.process.whole_output()
    }

    /// Fails with the end of its log if it has ended.
    pub fn must_run(&mut self) -> Result<(), E2eError> {
        self.process.must_run()
    }

    /// Sends one request to its own endpoint.
    pub async fn get(&self, path: &str, token: Option<&str>) -> Result<KubeletResponse, E2eError> {
        let url = format!("https://{}{path}", self.listen);
        get_once(self.listen, &self.tls, token, &url).await
    }

    /// Kills it, starts it again and waits until it renews its lease.
    pub async fn kill_and_restart(&mut self, namespace: &TestNamespace) -> Result<(), E2eError> {
        self.process.kill();
        let since = k8s_openapi::jiff::Timestamp::now();
        self.process = Background::start(&self.program, &self.arguments, &self.log)?;
        let leases: Api<Lease> = Api::namespaced(namespace.cluster().client(), LEASES);
        let renewed = |lease: Option<&Lease>| {
            let renewed = lease.and_then(|lease| lease.spec.as_ref()?.renew_time.as_ref());
            renewed.is_some_and(|renewed| renewed.0 > since)
        };
        tokio::select! {
            found = wait_for(leases, &self.name, DEADLINE, renewed) => found.map(drop),
            ended = end_of(&mut self.process) => Err(ended),
        }
    }

    /// Stops it, and leaves the Node alone.
    pub fn stop_on_host(mut self) -> Result<(), E2eError> {
        self.process.must_run()?;
        self.process.terminate()
    }

    /// Stops it and deletes its Node.
    pub async fn stop(mut self, namespace: &TestNamespace) -> Result<(), E2eError> {
        self.process.must_run()?;
        self.process.terminate()?;
        let nodes: Api<Node> = Api::all(namespace.cluster().client());
        let deleted = nodes.delete(&self.name, &DeleteParams::default()).await;
        deleted.map_err(E2eError::api(format!("deleting the node {}", self.name)))?;
        self.registered_in = None;
        let own = format!("--selector={OWNER_LABEL}={}", namespace.name());
        let rights = ["delete", "roles,rolebindings", "--namespace", LEASES, &own];
        namespace.cluster().kubectl(&rights).await?.succeeded()?;
        Ok(())
    }

    /// Returns what puts a pod on this node: for the spec of a pod.
    pub fn placement(&self) -> Value {
        json!({
            "nodeSelector": {"kubernetes.io/hostname": self.name},
            "tolerations": [{"operator": "Exists"}],
        })
    }

    async fn wait(
        &mut self,
        namespace: &TestNamespace,
        wanted: impl Fn(Option<&Node>) -> bool,
    ) -> Result<(), E2eError> {
        tokio::select! {
            found = namespace.wait_for_global(&self.name, wanted) => found.map(drop),
            ended = end_of(&mut self.process) => Err(ended),
        }
    }
}

impl Drop for VirtualNode {
    fn drop(&mut self) {
        if let Some(cluster) = self.registered_in.take() {
            self.process.kill();
            report::delete_node(&cluster, &self.name);
        }
    }
}

/// A serving certificate that the cluster's authority signs, as a kubelet's.
fn serving_pair(
    namespace: &TestNamespace,
    name: &str,
    listen: SocketAddr,
) -> Result<(PathBuf, PathBuf), E2eError> {
    let names = vec![name.to_owned(), listen.ip().to_string()];
    let mut leaf = CertificateParams::new(names)?;
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let (certificate, key) = signed(namespace, &leaf)?;
    Ok((
        namespace.write("node.crt", &certificate)?,
        namespace.write("node.key", &key)?,
    ))
}

/// A kubeconfig with the client certificate of a node.
fn node_kubeconfig(namespace: &TestNamespace, name: &str) -> Result<PathBuf, E2eError> {
    let mut leaf = CertificateParams::default();
    leaf.distinguished_name = DistinguishedName::new();
    let user = format!("system:node:{name}");
    leaf.distinguished_name.push(DnType::CommonName, &user);
    leaf.distinguished_name
        .push(DnType::OrganizationName, "system:nodes");
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let (certificate, key) = signed(namespace, &leaf)?;
    let identity = json!({
        "client-certificate-data": STANDARD.encode(certificate),
        "client-key-data": STANDARD.encode(key),
    });
    kubeconfig_of(namespace, "node", &identity)
}

/// Signs a certificate by the cluster's authority. Returns it and its key.
fn signed(
    namespace: &TestNamespace,
    leaf: &CertificateParams,
) -> Result<(String, String), E2eError> {
    let authority = namespace.cluster().authority();
    let read = |path: PathBuf| match std::fs::read_to_string(&path) {
        Ok(text) => Ok(text),
        Err(source) => Err(E2eError::Description { path, source }),
    };
    let issuer_key = KeyPair::from_pem(&read(authority.with_extension("key"))?)?;
    let mut issuer = CertificateParams::default();
    issuer.distinguished_name = DistinguishedName::new();
    issuer
        .distinguished_name
        .push(DnType::CommonName, AUTHORITY);
    let issuer = Issuer::new(issuer, issuer_key);
    let key = KeyPair::generate()?;
    let certificate = leaf.signed_by(&key, &issuer)?;
    Ok((certificate.pem(), key.serialize_pem()))
}
