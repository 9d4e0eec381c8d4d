//! The Helm chart, and what it renders: versions, values, rights, security contexts.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::manifests::{items, manifests, objects, rules, text, texts};
use crate::read;

const CHART: &str = "deploy/chart/kubevitals";

/// The rights that the roles need, as `VERBS GROUP/RESOURCES [NAMES]`. No account has any other.
const RIGHTS: [&str; 10] = [
    "get /nodes/metrics",
    "get /nodes/stats",
    "create /serviceaccounts/token [NAME]",
    "list,watch /pods,nodes",
    "get,patch apiregistration.k8s.io/apiservices [v1.metrics.k8s.io,v1beta1.metrics.k8s.io]",
    "list,watch /pods",
    "list,watch /events",
    "list,watch /nodes",
    "get,update coordination.k8s.io/leases [NAME]",
    // Roles of Kubernetes, whose rules are not known here.
    " /",
];

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
    for file in ["deploy/server.yaml", "deploy/transitions.yaml"] {
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

#[test]
fn accounts_have_the_rights_of_their_roles_and_no_others() {
    let mut used = BTreeSet::new();
    for file in manifests() {
        let objects = objects(&file);
        let accounts = objects
            .iter()
            .filter(|object| text(object, "/kind") == "ServiceAccount");
        for account in accounts {
            let (namespace, name) = (
                text(account, "/metadata/namespace"),
                text(account, "/metadata/name"),
            );
            for (role, rule) in rules(&objects, &format!("{namespace}/{name}")) {
                let right = right(rule);
                assert!(
                    RIGHTS.contains(&right.as_str()),
                    "{file}: {role} gives {name} {right:?}"
                );
                used.insert(right);
            }
        }
    }
    let unused: Vec<&&str> = RIGHTS
        .iter()
        .filter(|right| !used.contains(**right))
        .collect();
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

/// Returns the pod templates of a manifest, each with the name of its Deployment.
fn pods(objects: &[Value]) -> Vec<(&str, &Value)> {
    objects
        .iter()
        .filter_map(|object| {
            let pod = object.pointer("/spec/template/spec")?;
            Some((text(object, "/metadata/name"), pod))
        })
        .collect()
}

#[test]
fn pods_satisfy_the_restricted_pod_security_standard() {
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
            for volume in items(pod, "/volumes") {
                let is_allowed = ["emptyDir", "secret", "configMap", "projected"]
                    .iter()
                    .any(|kind| volume.get(kind).is_some());
                assert!(is_allowed, "{file}: {name}: {volume}");
            }
            for container in items(pod, "/containers") {
                let context = container.pointer("/securityContext").unwrap();
                let wanted = serde_json::json!({
                    "allowPrivilegeEscalation": false,
                    "capabilities": {"drop": ["ALL"]},
                    "readOnlyRootFilesystem": true,
                    "runAsNonRoot": true,
                    "runAsUser": 65534,
                    "seccompProfile": {"type": "RuntimeDefault"},
                });
                assert_eq!(context, &wanted, "{file}: {name}");
            }
        }
    }
    assert!(seen > 10, "{seen} pods");
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
                "Deployment" | "PodDisruptionBudget" | "PodMonitor" => {
                    &["/spec/selector/matchLabels"]
                }
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
