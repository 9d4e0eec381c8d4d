//! The Helm chart, and what it renders: versions, values, rights, security contexts.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::manifests::{items, manifests, objects, rules, text, texts};
use crate::read;

const CHART: &str = "deploy/chart/kubevitals";

/// The rights that each role needs, as `VERBS GROUP/RESOURCES [NAMES]`. Its accounts have no other.
const RIGHTS: [(&str, &[&str]); 5] = [
    (
        "server",
        &[
            "get /nodes/metrics",
            "get /nodes/stats",
            "create /serviceaccounts/token [NAME]",
            "list,watch /pods,nodes",
            "get,patch apiregistration.k8s.io/apiservices [v1.metrics.k8s.io,v1beta1.metrics.k8s.io]",
            REVIEWS,
        ],
    ),
    (
        "transitions",
        &[
            "list,watch /pods",
            "list,watch /events",
            "list,watch /nodes",
            "get,update coordination.k8s.io/leases [NAME]",
        ],
    ),
    (
        "node",
        &[
            // The provider `host` has these two, and reviews.
            "get,list,watch /pods",
            "get /nodes",
            REVIEWS,
            "create,get,patch /nodes",
            "patch /nodes/status",
            "get,list,watch,delete /pods",
            "patch /pods/status",
            "create,patch /events",
            "get /configmaps,secrets",
            "create /serviceaccounts/token",
            "list /services",
            "create,get,update coordination.k8s.io/leases",
        ],
    ),
    (
        "prober",
        &[
            "list,watch /nodes",
            "list,watch apps/daemonsets,deployments",
            "list metrics.k8s.io/pods",
            "get,update coordination.k8s.io/leases [NAME]",
            "list,watch /pods",
        ],
    ),
    (
        "prober-node",
        &[
            "list,watch /nodes",
            "list,watch /pods",
            "get /nodes/healthz",
        ],
    ),
];

/// The rights of a DaemonSet that reads nodes.
const HOST_RIGHTS: [&str; 3] = ["get,list,watch /pods", "get /nodes", REVIEWS];

/// Roles of Kubernetes, whose rules are not known here.
const REVIEWS: &str = " /";

/// What the provider `host` reads of its node, besides processes.
const HOST_PATHS: [&str; 2] = ["/sys/fs/cgroup", "/var/log"];

/// The values of metrics-server's chart 3.13.1.
const PEER_VALUES: &str = "
image.repository image.tag image.pullPolicy imagePullSecrets nameOverride fullnameOverride namespaceOverride
serviceAccount.create serviceAccount.annotations serviceAccount.name serviceAccount.secrets rbac.create
rbac.pspEnabled apiService.create apiService.annotations apiService.insecureSkipTLSVerify apiService.caBundle
commonLabels podLabels podAnnotations podSecurityContext hostUsers securityContext priorityClassName containerPort
hostNetwork.enabled replicas revisionHistoryLimit updateStrategy podDisruptionBudget.enabled
podDisruptionBudget.minAvailable podDisruptionBudget.maxUnavailable
podDisruptionBudget.unhealthyPodEvictionPolicy defaultArgs args livenessProbe readinessProbe service.type
service.port service.annotations service.labels addonResizer metrics.enabled serviceMonitor.enabled
serviceMonitor.additionalLabels serviceMonitor.interval serviceMonitor.scrapeTimeout
serviceMonitor.metricRelabelings serviceMonitor.relabelings resources extraVolumeMounts extraVolumes nodeSelector
tolerations affinity topologySpreadConstraints dnsConfig deploymentAnnotations schedulerName tmpVolume tls.type
tls.clusterDomain tls.certManager.addInjectorAnnotations tls.certManager.existingIssuer.enabled
tls.certManager.existingIssuer.kind tls.certManager.existingIssuer.name tls.certManager.duration
tls.certManager.renewBefore tls.certManager.annotations tls.certManager.labels tls.helm tls.existingSecret.name
tls.existingSecret.lookup";

/// Those that are not there; the README of the chart has the reasons.
const MISSING_VALUES: [&str; 3] = ["addonResizer", "rbac.pspEnabled", "tls.helm"];

fn yaml(file: &str) -> Value {
    serde_saphyr::from_str(&read(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn schema() -> Value {
    serde_json::from_str(&read(&format!("{CHART}/values.schema.json"))).unwrap()
}

/// The schema of a value; a reference is followed.
fn property<'a>(schema: &'a Value, parent: &'a Value, key: &str) -> Option<&'a Value> {
    let found = parent.pointer("/properties")?.get(key)?;
    match text(found, "/$ref").strip_prefix('#') {
        Some(pointer) => schema.pointer(pointer),
        None => Some(found),
    }
}

fn is_closed(schema: &Value) -> bool {
    schema.pointer("/additionalProperties") == Some(&Value::Bool(false))
}

#[test]
fn the_version_is_that_of_the_workspace() {
    let manifest = read("Cargo.toml");
    let version = manifest
        .lines()
        .find_map(|line| line.strip_prefix("version = "))
        .unwrap()
        .trim_matches('"');
    let chart = yaml(&format!("{CHART}/Chart.yaml"));
    assert_eq!(text(&chart, "/version"), version);
    assert_eq!(text(&chart, "/appVersion"), version);
    let values = yaml(&format!("{CHART}/values.yaml"));
    let repository = text(&values, "/image/repository");
    for file in [
        "deploy/node.yaml",
        "deploy/prober.yaml",
        "deploy/server.yaml",
        "deploy/transitions.yaml",
    ] {
        let image = format!("image: {repository}:{version}\n");
        assert!(read(file).contains(&image), "{file} has no {image}");
    }
}

#[test]
fn every_value_is_in_the_schema_and_no_other() {
    fn compare(schema: &Value, parent: &Value, values: &Value, path: &str) {
        let keys = |value: &Value| -> BTreeSet<String> {
            let object = value.as_object();
            object
                .into_iter()
                .flatten()
                .map(|(key, _)| key.clone())
                .collect()
        };
        let mut known = keys(parent.pointer("/properties").unwrap());
        // Helm itself sets it in a chart that is part of another.
        if path.is_empty() {
            known.remove("global");
        }
        assert_eq!(keys(values), known, "{path}");
        for (key, value) in values.as_object().unwrap() {
            let child = property(schema, parent, key).unwrap();
            if is_closed(child) {
                compare(schema, child, value, &format!("{path}.{key}"));
            }
        }
    }
    let schema = schema();
    assert!(is_closed(&schema));
    let values = yaml(&format!("{CHART}/values.yaml"));
    compare(&schema, &schema, &values, "");
}

#[test]
fn values_of_the_chart_of_metrics_server_are_accepted_or_listed_as_missing() {
    let schema = schema();
    let readme = read(&format!("{CHART}/README.md"));
    for name in PEER_VALUES.split_whitespace() {
        let mut found = Some(&schema);
        for key in name.split('.') {
            found = found.and_then(|parent| property(&schema, parent, key));
        }
        let is_missing = MISSING_VALUES.contains(&name);
        assert_eq!(found.is_none(), is_missing, "{name}");
        // `service.*` stands for all values of a section.
        let (section, _) = name.split_once('.').unwrap_or((name, ""));
        let is_named = [name, section].iter().any(|name| {
            readme.contains(&format!("`{name}`")) || readme.contains(&format!("`{name}."))
        });
        assert!(is_named, "the README of the chart does not name {name}");
    }
}

/// Returns the rights of an account that these objects give it.
fn rights(objects: &[Value], account: &Value) -> Vec<(String, String)> {
    let name = format!(
        "{}/{}",
        text(account, "/metadata/namespace"),
        text(account, "/metadata/name")
    );
    let rules = rules(objects, &name).into_iter();
    rules.map(|(role, rule)| (role, right(rule))).collect()
}

#[test]
fn accounts_have_the_rights_of_their_roles_and_no_others() {
    let mut used = BTreeSet::new();
    for file in manifests() {
        let objects = objects(&file);
        let accounts = objects
            .iter()
            .filter(|object| text(object, "/kind") == "ServiceAccount");
        for account in accounts {
            let component = text(account, "/metadata/labels/app.kubernetes.io~1component");
            let is_role_of = |role: &str| {
                role == component
                    || component == "combined" && ["server", "transitions"].contains(&role)
            };
            let of_roles = RIGHTS.iter().filter(|(role, _)| is_role_of(role));
            let known: Vec<(&str, &str)> = of_roles
                .flat_map(|(role, rights)| rights.iter().map(|right| (*role, *right)))
                .collect();
            for (role, right) in rights(&objects, account) {
                let found = known.iter().filter(|(_, known)| *known == right);
                let found: Vec<_> = found.copied().collect();
                assert!(
                    !found.is_empty(),
                    "{file}: {role} gives {component} {right:?}"
                );
                used.extend(found);
            }
        }
    }
    let all = RIGHTS
        .iter()
        .flat_map(|(role, rights)| rights.iter().map(|right| (*role, *right)));
    let unused: Vec<_> = all.filter(|right| !used.contains(right)).collect();
    assert!(unused.is_empty(), "nobody has these rights: {unused:?}");
}

fn right(rule: &Value) -> String {
    let names = texts(rule, "/resourceNames");
    let names = match names.as_slice() {
        [] => String::new(),
        // A name that depends on that of the release.
        [_] => " [NAME]".to_owned(),
        several => format!(" [{}]", several.join(",")),
    };
    format!(
        "{} {}/{}{names}",
        texts(rule, "/verbs").join(","),
        texts(rule, "/apiGroups").join(","),
        texts(rule, "/resources").join(",")
    )
}

/// Returns the pod templates of a manifest, each with the name of its workload.
fn pods(objects: &[Value]) -> Vec<(&str, &Value)> {
    objects
        .iter()
        .filter_map(|object| {
            let pod = object.pointer("/spec/template/spec")?;
            Some((text(object, "/metadata/name"), pod))
        })
        .collect()
}

/// Whether a container of the pod reads its node: `--provider=host`.
fn reads_host(pod: &Value) -> bool {
    let mut containers = items(pod, "/containers").iter();
    containers.any(|container| texts(container, "/args").contains(&"--provider=host"))
}

/// The user of the image.
fn image_user() -> u64 {
    let dockerfile = read("Dockerfile");
    let user = dockerfile
        .lines()
        .find_map(|line| line.strip_prefix("USER "))
        .unwrap();
    let (user, group) = user.split_once(':').unwrap();
    assert_eq!(user, group);
    user.parse().unwrap()
}

#[test]
fn pods_satisfy_the_restricted_pod_security_standard() {
    let user = image_user();
    let mut seen = 0;
    for file in manifests() {
        let objects = objects(&file);
        for (name, pod) in pods(&objects) {
            seen += 1;
            // Only where an operator has asked for it.
            let may_use_host = file.ends_with("chart/metrics-server.yaml");
            assert!(
                may_use_host || pod.pointer("/hostNetwork").is_none(),
                "{file}: {name}"
            );
            for field in ["/hostIPC", "/hostPID"] {
                let may_see_host = field == "/hostPID" && reads_host(pod);
                assert!(
                    may_see_host || pod.pointer(field).is_none(),
                    "{file}: {name}: {field}"
                );
            }
            for volume in items(pod, "/volumes") {
                let is_allowed = ["emptyDir", "secret", "configMap", "projected"]
                    .iter()
                    .any(|kind| volume.get(kind).is_some());
                assert!(is_allowed || reads_host(pod), "{file}: {name}: {volume}");
            }
            for container in items(pod, "/containers") {
                let context = container.pointer("/securityContext").unwrap();
                let wanted = serde_json::json!({
                    "allowPrivilegeEscalation": false,
                    "capabilities": {"drop": ["ALL"]},
                    "readOnlyRootFilesystem": true,
                    "runAsGroup": user,
                    "runAsNonRoot": true,
                    "runAsUser": user,
                    "seccompProfile": {"type": "RuntimeDefault"},
                });
                assert_eq!(context, &wanted, "{file}: {name}");
            }
        }
    }
    assert!(seen > 10, "{seen} pods");
}

/// A DaemonSet that reads nodes is on every node: it has what it reads, and nothing that changes a
/// node or the cluster.
#[test]
fn an_agent_on_a_node_reads_and_changes_nothing() {
    let mut seen = 0;
    for file in manifests() {
        let objects = objects(&file);
        for (name, pod) in pods(&objects).iter().filter(|(_, pod)| reads_host(pod)) {
            seen += 1;
            assert_eq!(pod.pointer("/hostPID"), Some(&Value::Bool(true)), "{file}");
            let mut paths = Vec::new();
            for volume in items(pod, "/volumes") {
                let path = text(volume, "/hostPath/path");
                if path.is_empty() {
                    continue;
                }
                paths.push(path);
                for container in items(pod, "/containers") {
                    let mounts = items(container, "/volumeMounts");
                    for mount in mounts
                        .iter()
                        .filter(|mount| text(mount, "/name") == text(volume, "/name"))
                    {
                        assert_eq!(mount.pointer("/readOnly"), Some(&Value::Bool(true)));
                        assert_eq!(text(mount, "/mountPath"), path, "{file}: {name}");
                    }
                }
            }
            assert_eq!(paths, HOST_PATHS, "{file}: {name}");
            let account = text(pod, "/serviceAccountName");
            let account = objects
                .iter()
                .find(|object| {
                    text(object, "/kind") == "ServiceAccount"
                        && text(object, "/metadata/name") == account
                })
                .unwrap();
            for (role, right) in rights(&objects, account) {
                assert!(
                    HOST_RIGHTS.contains(&right.as_str()),
                    "{file}: {role}: {right}"
                );
            }
        }
    }
    assert!(seen > 1, "{seen} agents");
}

/// The Node has the name of the pod, which only a StatefulSet keeps.
#[test]
fn a_virtual_node_has_the_name_of_its_pod() {
    let mut seen = 0;
    for file in manifests() {
        for object in objects(&file) {
            let is_node = text(&object, "/spec/template/spec/containers/0/args/0") == "node";
            if !is_node {
                continue;
            }
            let container = object.pointer("/spec/template/spec/containers/0").unwrap();
            let is_host = texts(container, "/args").contains(&"--provider=host");
            let name = items(container, "/env")
                .iter()
                .find(|variable| text(variable, "/name") == "NODE_NAME")
                .unwrap();
            let (kind, path) = if is_host {
                ("DaemonSet", "spec.nodeName")
            } else {
                seen += 1;
                ("StatefulSet", "metadata.name")
            };
            assert_eq!(text(&object, "/kind"), kind, "{file}");
            assert_eq!(text(name, "/valueFrom/fieldRef/fieldPath"), path, "{file}");
        }
    }
    assert!(seen > 0, "no virtual node is rendered");
}

/// A node without a prober is a silent node: taints must not keep it away.
#[test]
fn a_prober_runs_on_every_node_and_knows_which() {
    let mut seen = 0;
    for file in manifests() {
        for object in objects(&file) {
            let container = "/spec/template/spec/containers/0";
            let arguments = texts(&object, &format!("{container}/args"));
            if arguments.first() != Some(&"prober") {
                continue;
            }
            if arguments.contains(&"--mode=cluster") {
                assert_eq!(text(&object, "/kind"), "Deployment", "{file}");
                continue;
            }
            seen += 1;
            assert!(arguments.contains(&"--mode=node"), "{file}: {arguments:?}");
            assert_eq!(text(&object, "/kind"), "DaemonSet", "{file}");
            let tolerated = items(&object, "/spec/template/spec/tolerations");
            assert_eq!(tolerated, [serde_json::json!({"operator": "Exists"})]);
            let fields: BTreeMap<&str, &str> = items(&object, &format!("{container}/env"))
                .iter()
                .map(|variable| {
                    let path = text(variable, "/valueFrom/fieldRef/fieldPath");
                    (text(variable, "/name"), path)
                })
                .collect();
            for (name, path) in [
                ("NODE_NAME", "spec.nodeName"),
                ("NODE_IP", "status.hostIP"),
                ("POD_IP", "status.podIP"),
                ("POD_NAME", "metadata.name"),
                ("POD_NAMESPACE", "metadata.namespace"),
            ] {
                assert_eq!(fields.get(name), Some(&path), "{file}: {name}");
            }
        }
    }
    assert!(seen > 2, "{seen} probers of nodes");
}

#[test]
fn pods_have_probes_requests_and_time_to_drain() {
    for file in manifests() {
        let objects = objects(&file);
        for (name, pod) in pods(&objects) {
            let grace = pod
                .pointer("/terminationGracePeriodSeconds")
                .and_then(Value::as_u64);
            assert!(grace > Some(30), "{file}: {name}: {grace:?}");
            for container in items(pod, "/containers") {
                let ports: Vec<&str> = items(container, "/ports")
                    .iter()
                    .map(|port| text(port, "/name"))
                    .collect();
                for (probe, path) in [("livenessProbe", "/livez"), ("readinessProbe", "/readyz")] {
                    let get = format!("/{probe}/httpGet");
                    assert_eq!(
                        text(container, &format!("{get}/path")),
                        path,
                        "{file}: {name}"
                    );
                    let port = text(container, &format!("{get}/port"));
                    assert!(ports.contains(&port), "{file}: {name}: {port:?}");
                }
                for resource in ["cpu", "memory"] {
                    let request = text(container, &format!("/resources/requests/{resource}"));
                    assert!(!request.is_empty(), "{file}: {name}: {resource}");
                }
            }
        }
    }
}

/// An APIService that nobody verifies, or that never becomes available.
#[test]
fn apiservices_are_verified_unless_the_values_say_otherwise() {
    for file in manifests() {
        let objects = objects(&file);
        let apis: Vec<&Value> = objects
            .iter()
            .filter(|object| text(object, "/kind") == "APIService")
            .collect();
        if apis.is_empty() {
            continue;
        }
        let names: Vec<&str> = apis.iter().map(|api| text(api, "/metadata/name")).collect();
        assert_eq!(
            names,
            ["v1.metrics.k8s.io", "v1beta1.metrics.k8s.io"],
            "{file}"
        );
        let flags: BTreeMap<&str, &str> = pods(&objects)
            .iter()
            .flat_map(|(_, pod)| items(pod, "/containers"))
            .flat_map(|container| texts(container, "/args"))
            .map(|flag| flag.split_once('=').unwrap_or((flag, "")))
            .collect();
        for api in apis {
            let insecure = api.pointer("/spec/insecureSkipTLSVerify").unwrap();
            assert_eq!(
                insecure,
                file.ends_with("chart/metrics-server.yaml"),
                "{file}"
            );
            let sources = [
                insecure == true,
                flags.contains_key("--manage-apiservices"),
                !text(api, "/spec/caBundle").is_empty(),
                !text(api, "/metadata/annotations/cert-manager.io~1inject-ca-from").is_empty(),
            ];
            let count = sources.iter().filter(|source| **source).count();
            assert_eq!(count, 1, "{file}: one source of the CA: {sources:?}");
            let backend = format!(
                "{}/{}",
                text(api, "/spec/service/namespace"),
                text(api, "/spec/service/name")
            );
            assert_eq!(
                flags.get("--apiservice-backend"),
                Some(&backend.as_str()),
                "{file}"
            );
        }
    }
}

#[test]
fn the_selectors_of_every_object_find_the_pods() {
    for file in manifests() {
        let objects = objects(&file);
        let templates: Vec<&Value> = objects
            .iter()
            .filter_map(|object| object.pointer("/spec/template/metadata/labels"))
            .collect();
        if templates.is_empty() {
            continue;
        }
        for object in &objects {
            let pointers: &[&str] = match text(object, "/kind") {
                "DaemonSet"
                | "Deployment"
                | "PodDisruptionBudget"
                | "PodMonitor"
                | "StatefulSet" => &["/spec/selector/matchLabels"],
                "Service" => &["/spec/selector"],
                "NetworkPolicy" => &["/spec/podSelector/matchLabels"],
                _ => &[],
            };
            for pointer in pointers {
                let selector = object.pointer(pointer).and_then(Value::as_object).unwrap();
                let found = templates.iter().filter(|labels| {
                    selector
                        .iter()
                        .all(|(key, value)| labels.get(key) == Some(value))
                });
                assert_eq!(
                    found.count(),
                    1,
                    "{file}: {}",
                    text(object, "/metadata/name")
                );
            }
        }
    }
}
