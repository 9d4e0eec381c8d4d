//! The image as a pod runs it: without a C library, a shell or a user's name around the program.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kubevitals_e2e::{Cluster, Rule};
use serde_json::{Value, json};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

const IMAGE: &str = "kubevitals.test/kubevitals:dev";

/// The name of the API server, which only the test's own DNS server knows.
const NAME: &str = "api.kubevitals.test";

/// A DNS server that knows one name.
struct NameServer {
    answered: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl NameServer {
    async fn start(at: SocketAddr, address: Ipv4Addr) -> anyhow::Result<Self> {
        let socket = UdpSocket::bind(at).await.context("port 53 of the node")?;
        let answered = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&answered);
        let task = tokio::spawn(async move {
            let mut query = [0; 512];
            while let Ok((length, client)) = socket.recv_from(&mut query).await {
                let Some((answer, found)) = answer(&query[..length], address) else {
                    continue;
                };
                counter.fetch_add(usize::from(found), Ordering::Relaxed);
                // A lost answer is asked for again.
                drop(socket.send_to(&answer, client).await);
            }
        });
        Ok(Self { answered, task })
    }
}

/// Answers a query (RFC 1035) of one question, and says whether it has an address.
fn answer(query: &[u8], address: Ipv4Addr) -> Option<(Vec<u8>, bool)> {
    let mut labels = Vec::new();
    let mut rest = query.get(12..)?;
    while let Some((length, tail)) = rest.split_first().filter(|(length, _)| **length > 0) {
        let (label, tail) = tail.split_at_checked(usize::from(*length))?;
        labels.push(String::from_utf8(label.to_vec()).ok()?);
        rest = tail;
    }
    // A zero byte, then type and class.
    let kind = rest.get(1..3)?;
    let end = query.len() - rest.len() + 5;
    let is_known = labels.join(".") == NAME;
    let has_address = is_known && kind == [0, 1];
    let mut answer = query.get(..2)?.to_vec();
    // A response to a recursive query; a name that does not exist is error 3.
    answer.extend([0x81, if is_known { 0x80 } else { 0x83 }]);
    answer.extend([0, 1, 0, u8::from(has_address), 0, 0, 0, 0]);
    answer.extend(query.get(12..end)?);
    if has_address {
        // The name of the question, type A, class IN, 60 seconds, four bytes.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        answer.extend(address.octets());
    }
    Some((answer, has_address))
}

/// A pod under the restricted Pod Security Standard, with a DNS server of its own.
fn pod(name_server: IpAddr) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "explain"},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "dnsPolicy": "None",
            // As the kubelet writes it for pods that use the cluster's DNS.
            "dnsConfig": {
                "nameservers": [name_server],
                "searches": ["svc.cluster.local", "cluster.local"],
                "options": [{"name": "ndots", "value": "5"}],
            },
            // Neither names a user: the image's must do.
            "securityContext": {
                "runAsNonRoot": true,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [{
                "name": "explain",
                "image": IMAGE,
                "imagePullPolicy": "Never",
                "command": ["/bin/kubectl-vitals"],
                "args": ["explain", "--slowest=3", "--kubeconfig=/kube/config"],
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [{"name": "kube", "mountPath": "/kube", "readOnly": true}],
            }],
            "volumes": [{"name": "kube", "secret": {"secretName": "kubeconfig"}}],
        },
    })
}

/// The C library is linked statically, and with glibc that has often meant programs that resolve
/// names only beside the shared libraries of the machine that built them.
#[tokio::test]
async fn a_name_is_resolved_inside_of_the_image() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("image").await?;
    let node = cluster.node_address();
    let IpAddr::V4(address) = node else {
        anyhow::bail!("the node has the address {node}");
    };
    let names = NameServer::start(SocketAddr::new(node, 53), address).await?;

    let rules = [Rule::watch(&["pods", "events", "nodes"])];
    let access = namespace.access("reader", &rules).await?;
    let file = access.kubeconfig(&namespace)?;
    let mut config: Value = serde_json::from_slice(&std::fs::read(file)?)?;
    let url = cluster.config().cluster_url;
    let port = url.port_u16().context("the API server has a port")?;
    let target = &mut config["clusters"][0]["cluster"];
    target["server"] = json!(format!("https://{NAME}:{port}"));
    target["tls-server-name"] = json!("kubernetes.default.svc");
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "kubeconfig"},
        "stringData": {"config": config.to_string()},
    });
    namespace.apply(&secret).await?;
    namespace.apply(&pod(node)).await?;

    let is_over = |pod: Option<&Pod>| {
        let phase = pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    };
    let done: Option<Pod> = namespace.wait_for("explain", is_over).await?;
    let log = namespace.kubectl(&["logs", "explain"]).await?;
    let phase = done.and_then(|pod| pod.status?.phase);
    assert_eq!(phase.as_deref(), Some("Succeeded"), "{log}");
    assert!(
        names.answered.load(Ordering::Relaxed) > 0,
        "nobody asked for {NAME}"
    );
    namespace.finish().await?;
    Ok(())
}
