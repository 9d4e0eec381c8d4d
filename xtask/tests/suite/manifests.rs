//! The manifests in `deploy` grant what their flags need, and no node gets more than reads.

use serde_json::Value;

use crate::{has_extension, read, tracked};

/// The verbs of an identity that every node of the cluster sees.
const READS: [&str; 3] = ["get", "list", "watch"];

/// `NAMESPACE/NAME` of a `ServiceAccount`.
type Account = String;

/// A container that runs the server role, and the account of its pod.
struct Server {
    flags: Vec<String>,
    account: Account,
}

impl Server {
    /// The value of a flag, as `--NAME=VALUE` or `--NAME VALUE`.
    fn flag(&self, name: &str) -> Option<&str> {
        let mut flags = self.flags.iter().map(String::as_str);
        while let Some(flag) = flags.next() {
            match flag
                .strip_prefix("--")
                .and_then(|flag| flag.strip_prefix(name))
            {
                Some("") => return flags.next(),
                Some(rest) if rest.starts_with('=') => return rest.get(1..),
                _ => {}
            }
        }
        None
    }

    /// The account whose token kubelets are sent.
    fn kubelet_account(&self) -> Option<Account> {
        assert_eq!(
            self.flag("kubelet-token-file"),
            None,
            "find out here whose token that volume holds"
        );
        if self.flag("kubelet-client-certificate").is_some() {
            return None;
        }
        let named = self.flag("kubelet-service-account");
        Some(named.map_or_else(|| self.account.clone(), str::to_owned))
    }
}

pub(crate) fn objects(file: &str) -> Vec<Value> {
    let text = read(file);
    let documents = text.split("\n---\n");
    let parsed = documents.map(|document| {
        serde_saphyr::from_str(document).unwrap_or_else(|error| panic!("{file}: {error}"))
    });
    parsed.filter(|object: &Value| !object.is_null()).collect()
}

/// The manifests that are shipped, and what the chart renders with the values of its tests.
pub(crate) fn manifests() -> Vec<String> {
    let files = tracked().into_iter();
    let files: Vec<String> = files
        .filter(|file| has_extension(file, "yaml"))
        .filter(|file| {
            let is_shipped = file.starts_with("deploy/") && !file.starts_with("deploy/chart/");
            is_shipped || file.starts_with("e2e/snapshots/chart/")
        })
        .collect();
    let of = |folder: &str| files.iter().filter(|file| file.starts_with(folder)).count();
    assert!(of("deploy/") > 0, "deploy has no manifests");
    assert!(of("e2e/snapshots/chart/") > 0, "the chart is not rendered");
    files
}

pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

pub(crate) fn texts<'a>(value: &'a Value, pointer: &str) -> Vec<&'a str> {
    items(value, pointer)
        .iter()
        .filter_map(Value::as_str)
        .collect()
}

pub(crate) fn items<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// The containers of workloads that run the server.
fn servers(objects: &[Value]) -> Vec<Server> {
    let mut found = Vec::new();
    for workload in objects {
        let pod = "/spec/template/spec";
        let namespace = text(workload, "/metadata/namespace");
        let account = text(workload, &format!("{pod}/serviceAccountName"));
        for container in items(workload, &format!("{pod}/containers")) {
            let mut flags = texts(container, "/command");
            flags.extend(texts(container, "/args"));
            let runs_server = flags.iter().any(|flag| {
                *flag == "server" || flag.starts_with("--roles") && flag.contains("server")
            });
            if runs_server {
                found.push(Server {
                    flags: flags.into_iter().map(str::to_owned).collect(),
                    account: format!("{namespace}/{account}"),
                });
            }
        }
    }
    found
}

/// The rules that bindings of these objects give an account, each with its role.
pub(crate) fn rules<'a>(objects: &'a [Value], account: &str) -> Vec<(String, &'a Value)> {
    let mut granted = Vec::new();
    for binding in objects {
        if !matches!(text(binding, "/kind"), "ClusterRoleBinding" | "RoleBinding") {
            continue;
        }
        let is_subject = items(binding, "/subjects").iter().any(|subject| {
            assert_eq!(
                text(subject, "/kind"),
                "ServiceAccount",
                "groups could include every account"
            );
            let (namespace, name) = (text(subject, "/namespace"), text(subject, "/name"));
            format!("{namespace}/{name}") == account
        });
        if !is_subject {
            continue;
        }
        let (kind, name) = (
            text(binding, "/roleRef/kind"),
            text(binding, "/roleRef/name"),
        );
        let role = objects
            .iter()
            .find(|role| text(role, "/kind") == kind && text(role, "/metadata/name") == name);
        let Some(role) = role else {
            // A role of the cluster, whose rules are not known here.
            granted.push((format!("{kind} {name}"), &Value::Null));
            continue;
        };
        granted.extend(
            items(role, "/rules")
                .iter()
                .map(|rule| (format!("{kind} {name}"), rule)),
        );
    }
    granted
}

/// Every kubelet was sent a token that may patch APIServices, so that one lost node could take over
/// `metrics.k8s.io`.
#[test]
fn the_token_that_kubelets_see_may_only_read() {
    let mut seen = 0;
    for file in manifests() {
        let objects = objects(&file);
        for server in servers(&objects) {
            seen += 1;
            let Some(account) = server.kubelet_account() else {
                continue;
            };
            let (namespace, name) = account.split_once('/').unwrap();
            let exists = objects.iter().any(|object| {
                text(object, "/kind") == "ServiceAccount"
                    && text(object, "/metadata/namespace") == namespace
                    && text(object, "/metadata/name") == name
            });
            assert!(exists, "{file}: no ServiceAccount {account}");
            let granted = rules(&objects, &account);
            assert!(!granted.is_empty(), "{file}: {account} may not even scrape");
            for (role, rule) in granted {
                let verbs = texts(rule, "/verbs");
                assert!(
                    !verbs.is_empty() && verbs.iter().all(|verb| READS.contains(verb)),
                    "{file}: {role} gives {account}, whose token every node sees, {verbs:?}"
                );
            }
        }
    }
    assert!(seen > 0, "no manifest runs the server");
}

#[test]
fn the_server_may_request_the_tokens_that_its_flags_name_and_no_others() {
    for file in manifests() {
        let objects = objects(&file);
        for server in servers(&objects) {
            let granted = rules(&objects, &server.account);
            let requests: Vec<&Value> = granted
                .iter()
                .filter(|(_, rule)| texts(rule, "/resources").contains(&"serviceaccounts/token"))
                .map(|(_, rule)| *rule)
                .collect();
            let Some(account) = server.flag("kubelet-service-account") else {
                assert!(requests.is_empty(), "{file}: tokens that nobody requests");
                continue;
            };
            let name = account.split_once('/').unwrap().1;
            let [rule] = requests.as_slice() else {
                panic!("{file}: one rule for serviceaccounts/token, not {requests:?}");
            };
            assert_eq!(texts(rule, "/resourceNames"), [name], "{file}");
            assert_eq!(texts(rule, "/verbs"), ["create"], "{file}");
        }
    }
}
