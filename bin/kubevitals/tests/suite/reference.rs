//! The reference of metrics is what the running roles expose.

#[path = "../../src/generated.rs"]
mod generated;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use http::StatusCode;
use kubevitals_sim::api::{Rule, User};
use kubevitals_sim::faults::Fault;
use kubevitals_sim::objects::Resource;
use kubevitals_transition_metrics::FAMILIES;
use serde_json::json;

use crate::DEADLINE;
use crate::server::{NODES, PODS, Running, cluster, count, fail_node};

const DOCUMENT: &str = "docs/reference/metrics.md";
const PART: &str = "metrics";

/// The labels of pods by default.
const POD_LABELS: [&str; 3] = ["namespace", "workload_kind", "workload"];

/// How long families are collected before the document is written.
const COLLECTED: Duration = Duration::from_secs(20);

/// A family of the exposition.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Family {
    kind: String,
    help: String,
    labels: BTreeSet<String>,
}

type Families = BTreeMap<String, Family>;

/// Families whose series appear only after something ended or failed, so that a run may lack them,
/// or that depend on the build: name, type, labels, help.
const OCCASIONAL: &[(&str, &str, &[&str], &str)] = &[
    (
        "kube_client_reflector_short_watches_total",
        "counter",
        &["name"],
        "Number of watches that ended within a second without events",
    ),
    (
        "kube_client_reflector_watch_duration_seconds",
        "histogram",
        &["name"],
        "Duration of watches in seconds",
    ),
    (
        "kube_client_reflector_watch_items",
        "histogram",
        &["name"],
        "Number of events in a watch",
    ),
    (
        "kube_client_stream_duration_seconds",
        "histogram",
        &["kind", "group", "version", "resource", "subresource", "end"],
        "Duration of watches and followed logs in seconds, by how they ended",
    ),
    (
        "kubevitals_admin_requests_total",
        "counter",
        &["route", "code"],
        "Total number of requests to the admin server by route and status code",
    ),
    // The second and third are set by builds for releases.
    (
        "kubevitals_build_info",
        "gauge",
        &["version", "revision", "rustc"],
        "A metric with the constant value 1, labeled with the version of the program",
    ),
    (
        "leader_election_slowpath_total",
        "counter",
        &["name"],
        "Total number of slow path exercised in renewing leader leases. 'name' is the string used to identify the lease",
    ),
    // For a host that is a name.
    (
        "rest_client_dns_resolution_duration_seconds",
        "histogram",
        &["host"],
        "DNS resolver latency in seconds. Broken down by host",
    ),
    (
        "rest_client_request_retries_total",
        "counter",
        &["code", "verb", "host"],
        "Number of request retries, partitioned by status code, verb, and host",
    ),
    // Every ten seconds.
    (
        "rest_client_transport_ca_reload_total",
        "counter",
        &["result", "reason"],
        "Number of times a CA reload is attempted, partitioned by the result and reason",
    ),
];

fn labels<'l>(names: impl IntoIterator<Item = &'l str>) -> BTreeSet<String> {
    names.into_iter().map(str::to_owned).collect()
}

/// Families that are known without a run.
fn declared() -> Families {
    let of_pods = FAMILIES.iter().map(|family| {
        let pod = POD_LABELS.into_iter().filter(|_| family.by_pod);
        let declared = Family {
            kind: family.kind.as_str().to_owned(),
            help: family.help.to_owned(),
            labels: labels(pod.chain(family.label)),
        };
        (family.name.to_owned(), declared)
    });
    let occasional = OCCASIONAL.iter().map(|(name, kind, names, help)| {
        let declared = Family {
            kind: (*kind).to_owned(),
            help: (*help).to_owned(),
            labels: labels(names.iter().copied()),
        };
        ((*name).to_owned(), declared)
    });
    of_pods.chain(occasional).collect()
}

/// Adds the families of an exposition in the Prometheus format.
fn collect(exposition: &str, families: &mut Families) {
    let mut help = "";
    let mut family = "";
    for line in exposition.lines() {
        if let Some(described) = line.strip_prefix("# HELP ") {
            help = described.split_once(' ').unwrap().1;
        } else if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (name, kind) = typed.split_once(' ').unwrap();
            family = name;
            let new = Family {
                kind: kind.to_owned(),
                help: help.trim_end_matches('.').to_owned(),
                labels: BTreeSet::new(),
            };
            families.entry(name.to_owned()).or_insert(new);
        } else if let Some((_, rest)) = line.split_once('{') {
            // Values stand between quotes: what is left are names.
            let names = rest.split('"').step_by(2);
            let names = names.map(|text| text.trim_matches([',', '=', '}', ' ']));
            let is_name = |text: &&str| text.starts_with(|c: char| c.is_ascii_alphabetic());
            let own = names.filter(is_name).filter(|name| *name != "le");
            let labels = &mut families.get_mut(family).unwrap().labels;
            labels.extend(own.map(str::to_owned));
        }
    }
}

fn markdown(families: &Families) -> String {
    let mut text = "\n| metric | type | labels | |\n|---|---|---|---|\n".to_owned();
    for (name, family) in families {
        let labels: Vec<String> = family
            .labels
            .iter()
            .map(|label| format!("`{label}`"))
            .collect();
        let (kind, help) = (&family.kind, &family.help);
        writeln!(
            text,
            "| `{name}` | {kind} | {} | {help} |",
            labels.join(", ")
        )
        .unwrap();
    }
    text.push('\n');
    text
}

#[tokio::test]
async fn the_reference_has_every_metric_of_the_roles() {
    let cluster = cluster(2).await;
    let writer = cluster.api().writer();
    for version in ["v1", "v1beta1"] {
        let object = json!({
            "metadata": {"name": format!("{version}.metrics.k8s.io")},
            "spec": {"group": "metrics.k8s.io", "version": version,
                     "groupPriorityMinimum": 100, "versionPriority": 100,
                     "service": {"namespace": "kube-system", "name": "metrics-server"}},
        });
        writer.create(Resource::ApiServices, object).unwrap();
    }
    let account = json!({"metadata": {"name": "reader", "namespace": "kube-system"}});
    writer.create(Resource::ServiceAccounts, account).unwrap();
    let reader = User::service_account("kube-system", "reader").name;
    let reads = ["nodes/metrics", "nodes/stats"];
    cluster
        .api()
        .allow(Rule::for_user(reader, ["get"], "", reads));
    fail_node(&cluster, "node-00001", Fault::ServerError);
    let flags = [
        "--roles=server,transitions",
        "--leader-elect",
        "--leader-elect-resource-namespace=kube-system",
        "--manage-apiservices",
        "--kubelet-service-account=kube-system/reader",
        // Nobody listens there.
        "--otlp-endpoint=http://127.0.0.1:9",
    ];
    let roles = Running::start_with(&cluster, &flags, Some(Box::new(std::io::sink()))).await;
    // A list, an object, an error, a watch, and a request without credentials.
    roles.until_served(PODS).await;
    roles.get_as_admin(&format!("{NODES}/node-00000")).await;
    roles.get_as_admin(&format!("{NODES}/missing")).await;
    roles.get(PODS, None).await;
    let watch = roles
        .get_as_admin(&format!("{PODS}?watch=1&timeoutSeconds=1"))
        .await;
    assert_eq!(watch.0, StatusCode::OK, "{}", watch.1);

    let mut families = declared();
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    let started = tokio::time::Instant::now();
    let wait = if generated::is_updating() {
        COLLECTED
    } else {
        DEADLINE
    };
    let documented = std::fs::read_to_string(generated::path(DOCUMENT)).unwrap();
    while started.elapsed() < wait {
        ticks.tick().await;
        let (_, exposition) = roles.get_as_admin("/metrics").await;
        collect(&exposition, &mut families);
        if documented.contains(&markdown(&families)) && !generated::is_updating() {
            break;
        }
    }
    generated::check(DOCUMENT, PART, &markdown(&families));
    assert!(count(&markdown(&families), "\n| `") > 80);
    roles.stop().await;
    cluster.shutdown().await;
}

#[test]
fn families_are_read_with_type_help_and_labels() {
    let mut families = Families::new();
    collect(
        "# HELP a_total Number of things.\n# TYPE a_total counter\na_total{x=\"1={\",y=\"\"} 1\n# HELP b B\n# TYPE b histogram\nb_bucket{le=\"1\"} 1\nb_sum 1\n",
        &mut families,
    );
    assert_eq!(
        markdown(&families)
            .trim()
            .lines()
            .skip(2)
            .collect::<Vec<_>>(),
        [
            "| `a_total` | counter | `x`, `y` | Number of things |",
            "| `b` | histogram |  | B |"
        ]
    );
}
