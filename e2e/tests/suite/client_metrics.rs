//! The metrics of our Kubernetes clients compared to those of real Go programs: a metric with a
//! name of client-go has its type, its labels and its buckets.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use http::{Method, Uri};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher;
use kube_client_metrics::hooks::{CaReload, ExecCallStatus, Hooks};
use kube_client_metrics::{Classifier, Code, Format, Registry};
use kube_lease::{Election, Elector};
use kube_workqueue::{Action, Controller};
use kubevitals_e2e::{
    Access, Background, Cluster, E2eError, Exposition, MetricsApiServer, Shape, TestNamespace,
};
use serde_json::json;

use crate::in_time;

/// Polling interval of a starting program.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Ports of the metrics of the cluster's own programs.
const SCHEDULER_PORT: u16 = 10259;
const CONTROLLER_MANAGER_PORT: u16 = 10257;

/// Prefixes of client-go's metrics.
const CLIENT_GO_PREFIXES: [&str; 3] = ["rest_client_", "workqueue_", "leader_election_"];

/// Families that Go programs expose only under conditions that a short test does not create. They
/// are compared if they exist.
const OPTIONAL: [(&str, &str); 4] = [
    (
        "rest_client_transport_ca_reload_total",
        "a CA file is looked at every few minutes",
    ),
    (
        "rest_client_dns_resolution_duration_seconds",
        "component-base declares it and does not register it",
    ),
    ("rest_client_request_retries_total", "nothing was retried"),
    (
        "leader_election_slowpath_total",
        "no renewal took the slow path",
    ),
];

fn client_go_families(exposition: &Exposition) -> BTreeMap<&str, &Shape> {
    let families = exposition.families.iter();
    families
        .map(|(name, shape)| (name.as_str(), shape))
        .filter(|(name, _)| {
            CLIENT_GO_PREFIXES
                .iter()
                .any(|prefix| name.starts_with(prefix))
        })
        .collect()
}

/// Writes a kubeconfig that authenticates with an exec plugin: a program that prints a token.
fn exec_kubeconfig(namespace: &TestNamespace, access: &Access) -> Result<PathBuf, E2eError> {
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": access.token()},
    });
    let credential = namespace.write("credential.json", &credential.to_string())?;
    let plain = access.kubeconfig(namespace)?;
    let mut config = Kubeconfig::read_from(&plain).unwrap();
    let user = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "cat",
        "args": [credential],
        "interactiveMode": "Never",
    }});
    config.auth_infos[0].auth_info = Some(serde_json::from_value(user).unwrap());
    namespace.write("exec.kubeconfig", &serde_json::to_string(&config).unwrap())
}

/// Starts a second controller manager of Kubernetes, with leader election and an exec plugin. Its
/// one controller duplicates that of the cluster, so it changes nothing.
fn controller_manager(
    namespace: &TestNamespace,
    kubeconfig: &Path,
) -> Result<(Background, SocketAddr), E2eError> {
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let kubeconfig = kubeconfig.display();
    let folder = namespace.folder();
    let arguments = [
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        format!("--bind-address={}", address.ip()),
        format!("--secure-port={}", address.port()),
        format!("--cert-dir={}", folder.join("controller-manager").display()),
        "--controllers=ttl-after-finished-controller".to_owned(),
        "--leader-elect=true".to_owned(),
        "--leader-elect-resource-name=client-metrics".to_owned(),
        format!("--leader-elect-resource-namespace={}", namespace.name()),
    ];
    let program = namespace.cluster().program("kube-controller-manager")?;
    let process = Background::start(&program, &arguments, &folder.join("controller-manager.log"))?;
    Ok((process, address))
}

/// Polls a program until it exposes a family.
async fn wait_for_family(address: SocketAddr, access: &Access, family: &str) -> Exposition {
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    in_time(&format!("{family} of {address}"), async {
        loop {
            ticks.tick().await;
            match Exposition::of(address, access).await {
                Ok(exposition) if exposition.families.contains_key(family) => return exposition,
                Ok(_) => println!("{address} does not show {family} yet"),
                Err(error) => println!("{address} does not answer yet: {error}"),
            }
        }
    })
    .await
}

/// Uses our clients: requests, a controller and an elector.
async fn use_clients(namespace: &TestNamespace, kubeconfig: &PathBuf, registry: &Registry) {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    let client = kube_client_metrics::client(config, registry).unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace.name());
    maps.list(&ListParams::default()).await.unwrap();
    assert!(maps.get_opt("none").await.unwrap().is_none());

    let hooks = registry.hooks();
    let controller = Controller::new("configmaps", &hooks, maps, watcher::Config::default()).run(
        |_, _| async { Ok::<_, Infallible>(Action::requeue(Duration::from_millis(1))) },
        |_, _, _| Action::await_change(),
        Arc::new(()),
    );
    // Every namespace has the ConfigMap with the cluster's authority.
    let reconciled = in_time(
        "two reconciliations",
        controller.take(2).collect::<Vec<_>>(),
    )
    .await;
    assert!(reconciled.iter().all(Result::is_ok), "{reconciled:?}");

    let election = Election::new(namespace.name(), "ours", "e2e");
    let mut elector = Elector::new(client, election, &hooks).unwrap();
    in_time("our lease", elector.acquire()).await;
    elector.release().await;
}

/// Reports events to the hooks that a short test cannot cause.
fn report_rare_events(hooks: &Hooks) {
    let call = Classifier::new("host").call(&Method::GET, &Uri::from_static("/api/v1/pods"));
    hooks.rate_limiter_latency.observe(&call, POLL_INTERVAL);
    hooks.request_retry.increment(&call, Code::Error);
    hooks.resolver_latency.observe("host", POLL_INTERVAL);
    hooks.transport_ca_reloads.increment(CaReload::Unchanged);
    hooks
        .exec_plugin_calls
        .increment(0, ExecCallStatus::NoError);
    hooks.client_cert_expiry.set(None);
    hooks.client_cert_rotation_age.observe(POLL_INTERVAL);
    hooks.leader_election.slowpath_exercised("ours");
}

#[tokio::test]
async fn metrics_named_as_in_client_go_have_its_type_labels_and_buckets() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("client-metrics").await?;
    let reader = namespace.access("metrics-reader", &[]).await?;
    reader
        .bind_everywhere(&namespace, "system:monitoring")
        .await?;
    let manager = namespace.access("manager", &[]).await?;
    manager.bind_everywhere(&namespace, "cluster-admin").await?;
    let kubeconfig = exec_kubeconfig(&namespace, &manager)?;

    let (mut process, address) = controller_manager(&namespace, &kubeconfig)?;
    let peer = MetricsApiServer::start_metrics_server(&namespace).await?;
    let node = cluster.node_address();
    let requests = "rest_client_requests_total";
    let go = [
        (
            "kube-scheduler",
            wait_for_family((node, SCHEDULER_PORT).into(), &reader, requests).await,
        ),
        (
            "kube-controller-manager",
            wait_for_family((node, CONTROLLER_MANAGER_PORT).into(), &reader, requests).await,
        ),
        (
            "metrics-server",
            wait_for_family(peer.api().listen(), &reader, requests).await,
        ),
        (
            "a controller manager that is elected",
            wait_for_family(address, &reader, "leader_election_master_status").await,
        ),
    ];
    process.must_run()?;
    peer.stop(&namespace).await?;

    let registry = Registry::new();
    use_clients(&namespace, &kubeconfig, &registry).await;
    let used = Exposition::parse(registry.encode_as(Format::Text).as_bytes())?;
    for family in [
        requests,
        "rest_client_request_duration_seconds",
        "rest_client_exec_plugin_call_total",
        "workqueue_adds_total",
        "leader_election_master_status",
    ] {
        assert!(
            used.families.contains_key(family),
            "{family} is not there after real use"
        );
    }
    report_rare_events(&registry.hooks());
    let ours = Exposition::parse(registry.encode_as(Format::Text).as_bytes())?;

    let mut compared = BTreeSet::new();
    for (name, shape) in client_go_families(&ours) {
        for (program, theirs) in &go {
            let Some(theirs) = theirs.families.get(name) else {
                continue;
            };
            println!("{name}: as in {program}");
            assert_eq!(shape, theirs, "{name}: ours, and that of {program}");
            compared.insert(name.to_owned());
        }
    }
    let claims: BTreeSet<String> = client_go_families(&ours)
        .into_keys()
        .map(str::to_owned)
        .collect();
    let left: Vec<&String> = claims.difference(&compared).collect();
    println!("compared {compared:?}; not shown by any program: {left:?}");
    for name in left {
        assert!(
            OPTIONAL.iter().any(|(known, _)| known == name),
            "{name} is compared with nothing"
        );
    }
    Ok(namespace.finish().await?)
}

#[tokio::test]
async fn our_server_exposes_the_metrics_of_its_clients() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("server-client-metrics").await?;
    let reader = namespace.access("metrics-reader", &[]).await?;
    reader
        .bind_everywhere(&namespace, "system:monitoring")
        .await?;
    let server = MetricsApiServer::start(&namespace).await?;
    let shown = wait_for_family(server.api().listen(), &reader, "rest_client_requests_total").await;
    let scheduler: SocketAddr = (cluster.node_address(), SCHEDULER_PORT).into();
    let scheduler = Exposition::of(scheduler, &reader).await?;
    let mut compared = 0;
    for (name, shape) in client_go_families(&shown) {
        if let Some(theirs) = scheduler.families.get(name) {
            assert_eq!(shape, theirs, "{name}");
            compared += 1;
        }
    }
    assert!(compared >= 4, "only {compared} families are in both");
    for family in [
        "kube_client_requests_total",
        "kube_client_streams_open",
        "kube_client_reflector_watches_total",
    ] {
        assert!(
            shown.families.contains_key(family),
            "{family}: {:?}",
            shown.families.keys()
        );
    }
    server.stop(&namespace).await?;
    Ok(namespace.finish().await?)
}
