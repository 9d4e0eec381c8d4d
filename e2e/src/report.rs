//! The report on a failed test.
//!
//! It runs while a test ends, perhaps during a panic and with a broken cluster. So nothing here is
//! asynchronous, panics or waits forever, and all output is limited.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::cluster::Cluster;
use crate::error::tail;
use crate::run::OWNER_LABEL;

/// Bytes that are shown of each command's output.
const MAX_BYTES: usize = 12 << 10;

/// Bytes that are shown of the log of each component.
const MAX_LOG_BYTES: u64 = 4 << 10;

/// Number of logs that are shown.
const MAX_LOGS: usize = 16;

/// Timeout of one command in seconds.
const TIMEOUT_SECONDS: &str = "20";

/// The kinds of a test's objects outside of its namespace, in the order of their deletion.
pub(crate) const KINDS_OUTSIDE: [&str; 3] = [
    "apiservices.apiregistration.k8s.io",
    "deployments,services,poddisruptionbudgets,networkpolicies,leases",
    "clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,\
     customresourcedefinitions",
];

/// Objects of a test that are neither cluster-scoped nor in its namespace are in this one.
pub(crate) const IN_KUBE_SYSTEM: &str = "--namespace=kube-system";

/// Selects the pods that a manifest of ours made.
pub(crate) const OUR_PODS: &str = "--selector=app.kubernetes.io/name=kubevitals";

/// Prints the state of a namespace and of its cluster.
#[expect(
    clippy::print_stdout,
    reason = "the test runner captures it, and shows it for tests that fail"
)]
pub(crate) fn print(cluster: &Cluster, namespace: &str, folder: &Path) {
    println!("=== the test of namespace {namespace} did not finish; the cluster at that moment:");
    let own = ["--namespace", namespace];
    for (heading, arguments) in [
        (
            "events",
            &["get", "events", "--sort-by=.metadata.creationTimestamp"][..],
        ),
        (
            "objects",
            &["get", "pods,services,endpointslices", "--output=wide"],
        ),
        ("pods", &["describe", "pods"]),
        (
            "logs of containers",
            &[
                "logs",
                "--selector=kubevitals.test/run",
                "--all-containers",
                "--prefix",
                "--tail=40",
                "--ignore-errors",
            ],
        ),
    ] {
        let arguments = [&own[..], arguments].concat();
        println!("--- {heading}\n{}", asked(cluster, &arguments));
    }
    for (heading, arguments) in [
        (
            "registered APIs that are not available",
            &["get", "apiservices", "--no-headers"][..],
        ),
        ("node", &["describe", "nodes"]),
        (
            "our pods in kube-system",
            &["describe", "pods", IN_KUBE_SYSTEM, OUR_PODS],
        ),
        (
            "their logs",
            &[
                "logs",
                IN_KUBE_SYSTEM,
                OUR_PODS,
                "--prefix",
                "--tail=60",
                "--ignore-errors",
            ],
        ),
    ] {
        let mut answer = asked(cluster, arguments);
        if heading.contains("not available") {
            answer = lines_with(&answer, "False");
        }
        println!("--- {heading}\n{answer}");
    }
    let components = logs(cluster.log_folder());
    for (component, log) in components.into_iter().chain(logs(folder)) {
        println!("--- end of the log of {component}\n{log}");
    }
    println!("=== end of the report on namespace {namespace}");
}

/// Deletes the objects of a namespace's test; prints failures.
#[expect(
    clippy::print_stdout,
    reason = "the test runner captures it, and shows it for tests that fail"
)]
pub(crate) fn delete(cluster: &Cluster, namespace: &str) {
    for arguments in deletions(namespace) {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        if let Err(problem) = ask(cluster, &arguments) {
            println!("cannot clean up: {problem}");
        }
    }
}

/// Deletes a Node; prints a failure. The garbage collector deletes its pods.
#[expect(
    clippy::print_stdout,
    reason = "the test runner captures it, and shows it for tests that fail"
)]
pub(crate) fn delete_node(cluster: &Cluster, name: &str) {
    let arguments = ["delete", "node", name, "--ignore-not-found", "--wait=false"];
    if let Err(problem) = ask(cluster, &arguments) {
        println!("cannot delete the node: {problem}");
    }
}

/// Returns the `kubectl` arguments that delete all objects of a test.
pub(crate) fn deletions(namespace: &str) -> Vec<Vec<String>> {
    let mut deletions = deletions_outside(namespace);
    let own = ["delete", "namespaces", namespace];
    let own = own
        .into_iter()
        .chain(["--wait=false", "--ignore-not-found"]);
    deletions.push(own.map(str::to_owned).collect());
    deletions
}

/// Returns the `kubectl` arguments that delete the objects of a test outside of its namespace.
/// Registered APIs go first: one that nobody serves keeps namespaces from being deleted.
pub(crate) fn deletions_outside(namespace: &str) -> Vec<Vec<String>> {
    let owned = format!("--selector={OWNER_LABEL}={namespace}");
    KINDS_OUTSIDE
        .iter()
        .map(|kinds| {
            let words = [
                "delete",
                kinds,
                IN_KUBE_SYSTEM,
                &owned,
                "--ignore-not-found",
            ];
            words.map(str::to_owned).to_vec()
        })
        .collect()
}

/// Returns the output of `kubectl`, or its error; cut.
fn asked(cluster: &Cluster, arguments: &[&str]) -> String {
    match ask(cluster, arguments) {
        Ok(answer) => tail(&answer, MAX_BYTES),
        Err(problem) => tail(&problem, MAX_BYTES),
    }
}

fn ask(cluster: &Cluster, arguments: &[&str]) -> Result<String, String> {
    let kubectl = cluster
        .program("kubectl")
        .map_err(|error| error.to_string())?;
    // `timeout`, because kubectl itself can hang before its first request.
    let output = Command::new("timeout")
        .args(["--kill-after=1", TIMEOUT_SECONDS])
        .arg(kubectl)
        .arg("--kubeconfig")
        .arg(cluster.kubeconfig())
        .arg("--request-timeout=10s")
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    let output = output.map_err(|error| format!("kubectl cannot be run: {error}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!(
            "kubectl {}: {}: {stderr}",
            arguments.join(" "),
            output.status
        ));
    }
    Ok(format!(
        "{}{stderr}",
        String::from_utf8_lossy(&output.stdout)
    ))
}

fn lines_with(text: &str, word: &str) -> String {
    text.lines()
        .filter(|line| line.contains(word))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns the ends of the logs in a folder, by name.
fn logs(folder: &Path) -> Vec<(String, String)> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<(String, String)> = files
        .filter(|file| {
            file.path()
                .extension()
                .is_some_and(|extension| extension == "log")
        })
        .map(|file| {
            let path = file.path();
            let component = path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let log = end_of(&path).unwrap_or_else(|error| format!("cannot be read: {error}"));
            (component, log)
        })
        .collect();
    found.sort();
    found.truncate(MAX_LOGS);
    found
}

fn end_of(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(MAX_LOG_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(MAX_LOG_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_a_long_log_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let long = "line\n".repeat(10_000) + "last\n";
        std::fs::write(folder.path().join("kubelet.log"), &long).unwrap();
        std::fs::write(folder.path().join("etcd.log"), "short\n").unwrap();
        std::fs::write(folder.path().join("pki.pem"), "no log").unwrap();
        let found = logs(folder.path());
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["etcd", "kubelet"]);
        assert_eq!(found[0].1, "short\n");
        assert_eq!(found[1].1.len(), 4 << 10);
        assert!(found[1].1.ends_with("last\n"));
    }

    #[test]
    fn registered_apis_are_deleted_before_their_namespace() {
        let kinds: Vec<String> = deletions("e2e-x")
            .into_iter()
            .map(|words| words[1].clone())
            .collect();
        assert_eq!(kinds.first().unwrap(), "apiservices.apiregistration.k8s.io");
        assert_eq!(kinds.last().unwrap(), "namespaces");
        assert!(logs(Path::new("/nonexistent")).is_empty());
    }
}
