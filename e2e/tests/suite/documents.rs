//! The `kubectl` commands of the documents, on a cluster in which the manifests are installed.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use kubevitals_e2e::{Cluster, InstalledServer, Manifest};
use serde_json::json;

/// The image of our program, which `cargo xtask e2e` builds and imports.
const IMAGE: &str = "kubevitals.test/kubevitals:dev";

/// A command of a document.
#[derive(Debug)]
struct Documented {
    document: String,
    command: String,
}

/// How a command is run.
#[derive(Debug, PartialEq, Eq)]
enum Mode {
    /// As it stands; it must succeed.
    Run,
    /// It watches until it is interrupted: it must not fail within a second.
    Watch,
    /// It changes objects: the API server validates the change and keeps nothing.
    DryRun,
    /// A file of another project, which is not here.
    Skip,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the `kubectl` commands in the `sh` blocks of the documents.
fn documented() -> Vec<Documented> {
    let pages = std::fs::read_dir(root().join("docs")).unwrap();
    let mut pages: Vec<PathBuf> = pages.map(|entry| entry.unwrap().path()).collect();
    pages.retain(|file| file.extension().is_some_and(|extension| extension == "md"));
    // The test `install` runs its commands as they stand.
    pages.retain(|file| !file.ends_with("install.md"));
    pages.push(root().join("README.md"));
    pages.sort();
    let mut commands = Vec::new();
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        for block in text.split("```sh\n").skip(1) {
            let block = block.split("```").next().unwrap().replace("\\\n", " ");
            let lines = block.lines().filter(|line| line.starts_with("kubectl "));
            commands.extend(lines.map(|line| Documented {
                document: page.file_name().unwrap().to_str().unwrap().to_owned(),
                command: line.split(" # ").next().unwrap().trim().to_owned(),
            }));
        }
    }
    commands
}

fn mode(command: &str) -> Mode {
    let words: Vec<&str> = command.split_whitespace().collect();
    let has = |word: &str| words.contains(&word);
    if has("components.yaml") || has("deployment/metrics-server") && has("rollout") {
        Mode::Skip
    } else if has("--watch") {
        Mode::Watch
    } else if ["apply", "delete", "patch", "create", "annotate"]
        .iter()
        .any(|verb| has(verb))
    {
        Mode::DryRun
    } else {
        Mode::Run
    }
}

fn shell(command: &str, bin: &Path, kubeconfig: &Path, folder: &Path) -> std::io::Result<Output> {
    let path = std::env::var("PATH").unwrap_or_default();
    Command::new("sh")
        .args(["-ec", command])
        .current_dir(folder)
        .env("PATH", format!("{}:{path}", bin.display()))
        .env("KUBECONFIG", kubeconfig)
        .output()
}

#[tokio::test]
async fn every_kubectl_command_works() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("documents").await?;
    let server = InstalledServer::install(&namespace).await?;
    let transitions = Manifest::read("transitions.yaml")?.with_image(IMAGE);
    for object in transitions.objects() {
        namespace.apply(object).await?;
    }
    // Objects of metrics-server, which migration deletes.
    let labels = json!({"k8s-app": "metrics-server"});
    for object in [
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "metrics-server", "namespace": "kube-system"},
            "spec": {"replicas": 0, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "main", "image": IMAGE}]}}}}),
        json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "metrics-server", "namespace": "kube-system"},
            "spec": {"selector": labels, "ports": [{"port": 443}]}}),
    ] {
        namespace.apply(&object).await?;
    }
    let lease = [
        "--namespace=kube-system",
        "rollout",
        "status",
        "deployment/kubevitals-transitions",
    ];
    cluster.kubectl(&lease).await?.succeeded()?;

    let bin = tempfile::tempdir()?;
    symlink(cluster.program("kubectl")?, bin.path().join("kubectl"))?;
    let commands = documented();
    ensure!(commands.len() > 10, "{commands:#?}");
    let mut problems = Vec::new();
    for Documented { document, command } in commands {
        let name = cluster.node_name();
        let command = command.replace("NODE", name);
        let run = match mode(&command) {
            Mode::Skip => continue,
            Mode::Run => command.clone(),
            Mode::DryRun => format!("{command} --dry-run=server"),
            Mode::Watch => {
                let (watch, _) = command
                    .split_once('>')
                    .context("a recording goes to a file")?;
                let seconds = Duration::from_secs(2).as_secs();
                // Interrupted by `timeout`, which then exits with 124.
                format!("timeout {seconds} {watch} > /dev/null || test $? = 124")
            }
        };
        let output = shell(&run, bin.path(), cluster.kubeconfig(), &root())?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        println!(
            "$ {run}\n{}{stderr}",
            String::from_utf8_lossy(&output.stdout)
        );
        if !output.status.success() {
            problems.push(format!("{document}: {run}: {stderr}"));
        }
    }
    ensure!(problems.is_empty(), "{problems:#?}");
    server.remove(&namespace).await?;
    Ok(namespace.finish().await?)
}
