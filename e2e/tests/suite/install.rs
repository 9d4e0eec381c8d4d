//! The commands of `docs/install.md`, one after the other, in a shell.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use kubevitals_e2e::{Cluster, Inventory};
use serde_json::json;
use tokio::process::Command;

/// Timeout of one block of commands.
const TIMEOUT: Duration = Duration::from_mins(4);

/// The image in the document, and the one that is imported.
const IMAGE: [(&str, &str); 2] = [
    ("registry.example/kubevitals", "kubevitals.test/kubevitals"),
    ("0.1.0", "dev"),
];

/// What remains of a run that failed: the next test must not find it.
const CLEAN_UP: &str = "
helm uninstall kubevitals --namespace kubevitals --wait --ignore-not-found
kubectl delete -k deploy/kustomize/base --ignore-not-found
kubectl delete -f deploy/server-networkpolicy.yaml --ignore-not-found
kubectl delete namespace kubevitals --ignore-not-found";

/// Runs commands in the root of the repository, with the programs and the kubeconfig of the
/// cluster.
async fn shell(cluster: &Cluster, commands: &str) -> anyhow::Result<Output> {
    let mut path = Vec::new();
    for program in ["kubectl", "helm"] {
        let program = cluster.program(program)?;
        path.push(program.parent().map(Path::to_path_buf).unwrap_or_default());
    }
    path.extend(std::env::split_paths(
        &std::env::var_os("PATH").unwrap_or_default(),
    ));
    let output = Command::new("sh")
        .args(["-euxc", commands])
        .current_dir(root())
        .env("PATH", std::env::join_paths(path)?)
        .env("KUBECONFIG", cluster.kubeconfig())
        .kill_on_drop(true)
        .output();
    Ok(tokio::time::timeout(TIMEOUT, output).await??)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the headings of the document, each with the blocks of commands below it.
fn sections(document: &str) -> Vec<(String, Vec<String>)> {
    let mut sections = vec![(String::new(), Vec::new())];
    let mut inside = false;
    for line in document.lines() {
        let (_, blocks): &mut (String, Vec<String>) = sections.last_mut().unwrap();
        if line.starts_with("```") {
            inside = !inside;
            if inside {
                blocks.push(String::new());
            }
        } else if inside {
            let block = blocks.last_mut().unwrap();
            *block += line;
            block.push('\n');
        } else if let Some(heading) = line.strip_prefix("## ") {
            sections.push((heading.to_owned(), Vec::new()));
        }
    }
    sections.retain(|(_, blocks)| !blocks.is_empty());
    sections
}

/// Runs the commands of one section and asserts that nothing of it remains.
async fn run(cluster: &Cluster, heading: &str, blocks: &[String]) -> anyhow::Result<()> {
    let before = Inventory::take(cluster).await?;
    if heading.contains("metrics-server") {
        let namespace = cluster.namespace("install-peer").await?;
        // As in the manifest of metrics-server, whose pods need not run for this.
        namespace
            .apply(&json!({
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": "v1beta1.metrics.k8s.io"},
                "spec": {
                    "group": "metrics.k8s.io",
                    "version": "v1beta1",
                    "groupPriorityMinimum": 100,
                    "versionPriority": 100,
                    "insecureSkipTLSVerify": true,
                    "service": {"name": "metrics-server", "namespace": "kube-system"},
                },
            }))
            .await?;
        let refused = blocks[0].replace("--take-ownership", "");
        let refused = shell(cluster, &imported(&refused)).await?;
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success());
        assert!(said.contains("v1beta1.metrics.k8s.io"), "{said}");
        assert!(said.contains("ownership"), "{said}");
        // From here on the APIService belongs to the release.
        shell(
            cluster,
            "kubectl label apiservice v1beta1.metrics.k8s.io kubevitals.test/run- kubevitals.test/namespace-",
        )
        .await?;
        namespace.finish().await?;
    }
    for block in blocks {
        let output = shell(cluster, &imported(block)).await?;
        println!(
            "{}{}",
            String::from_utf8_lossy(&output.stderr),
            String::from_utf8_lossy(&output.stdout)
        );
        assert!(output.status.success(), "{heading}: {block}");
        if block.contains("kubectl top nodes") {
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(said.contains(cluster.node_name()), "{said}");
        }
    }
    Ok(before.until_nothing_is_added(cluster).await?)
}

fn imported(block: &str) -> String {
    let replaced = IMAGE.iter();
    replaced.fold(block.to_owned(), |block, (from, to)| {
        block.replace(from, to)
    })
}

#[tokio::test]
async fn every_command_of_the_installation_works_and_leaves_nothing() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    // They install into namespaces of users, and serve the API.
    let _alone = cluster.exclusive().await;
    let document = std::fs::read_to_string(root().join("docs/install.md"))?;
    let sections = sections(&document);
    let headings: Vec<&str> = sections
        .iter()
        .map(|(heading, _)| heading.as_str())
        .collect();
    assert_eq!(
        headings,
        ["Helm", "kubectl", "Kustomize", "In place of metrics-server"]
    );
    for (heading, blocks) in &sections {
        let result = run(&cluster, heading, blocks).await;
        if result.is_err() {
            println!("{:?}", shell(&cluster, CLEAN_UP).await);
        }
        result?;
    }
    Ok(())
}
