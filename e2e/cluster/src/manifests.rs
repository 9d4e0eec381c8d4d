//! `cargo xtask manifests`: the files that are rendered from the Helm chart.
//!
//! | file | rendered from |
//! |---|---|
//! | `deploy/*.yaml`, `deploy/kustomize/base/*.yaml` | the chart with one role, for users without Helm |
//! | `e2e/snapshots/chart/NAME.yaml` | the chart with `ci/NAME-values.yaml`, for tests without Helm |
//! | the table in the chart's `README.md` | the comments of its `values.yaml` |

mod values;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;
use xtask::step::{command_line, root};

use crate::fetch::{self, Program};

/// Files to render
#[derive(Debug, Args)]
pub(crate) struct ManifestsFlags {
    /// Write nothing, and fail if a file is not what the chart renders
    #[arg(long)]
    check: bool,
}

/// The chart, from the root of the repository.
const CHART: &str = "deploy/chart/kubevitals";

/// The ends of names of values files in the chart's folder `ci`.
const VALUES_SUFFIX: &str = "-values.yaml";

/// The name of the release, and so the prefix of names.
const RELEASE: &str = "kubevitals";

/// A manifest for users without Helm.
struct Plain {
    /// Its paths from `deploy`.
    paths: &'static [&'static str],
    /// Values that differ from the defaults.
    values: &'static str,
    /// The one kind that it has, if not all.
    kind: Option<&'static str>,
    /// The comment at its beginning.
    about: &'static str,
}

const PLAIN: [Plain; 5] = [
    Plain {
        paths: &["server.yaml", "kustomize/base/server.yaml"],
        values: "transitions.enabled=false",
        kind: None,
        about: "\
# kubevitals server: the resource metrics API behind kubectl top, HPA and VPA.
#
#   kubectl apply -f deploy/server.yaml
#
# It replaces metrics-server: docs/install.md says in which order. The server makes its own certificate and writes its
# CA into the two APIServices, so that the API server verifies it.
",
    },
    Plain {
        paths: &["transitions.yaml", "kustomize/base/transitions.yaml"],
        values: "server.enabled=false",
        kind: None,
        about: "\
# kubevitals transitions: how long every pod took to start, and why, as JSON lines on standard output and as metrics.
#
#   kubectl apply -f deploy/transitions.yaml
#
# Two replicas, of which the leader writes. The role reads pods and events, and owns one Lease; it reads no Secrets and
# changes nothing else.
",
    },
    Plain {
        paths: &["node.yaml"],
        values: "node.enabled=true,server.enabled=false,transitions.enabled=false",
        kind: None,
        about: "\
# kubevitals node: usage of every node, its pods and containers, read from cgroups and /proc beside the kubelet.
#
#   kubectl apply -f deploy/node.yaml
#
# An unprivileged process on each node that reads files of the node and changes nothing. It needs hostPID and two
# hostPath volumes, which a namespace admits that enforces no Pod Security Standard, or `privileged`.
",
    },
    Plain {
        paths: &["prober.yaml"],
        values: "prober.enabled=true,server.enabled=false,transitions.enabled=false",
        kind: None,
        about: "\
# kubevitals prober: the health of nodes and addons, and probes of connections, for Prometheus.
#
#   kubectl apply -f deploy/prober.yaml
#
# A Deployment that counts nodes and addons, of which the leader reports, and a pod on each node that reports of its
# addons and restarts. They read nodes, pods and workloads, own one Lease, and change nothing else.
",
    },
    Plain {
        paths: &["server-networkpolicy.yaml"],
        values: "networkPolicy.enabled=true,transitions.enabled=false",
        kind: Some("NetworkPolicy"),
        about: "\
# Optional, for clusters whose network plugin enforces policies: what kubevitals server needs and nothing else.
#
#   kubectl apply -f deploy/server-networkpolicy.yaml
#
",
    },
];

/// The line that follows the comment of every plain manifest.
const ORIGIN: &str = "\
# Rendered from deploy/chart/kubevitals by `cargo xtask manifests`: change the chart, not this file.
";

pub(crate) fn run(flags: &ManifestsFlags) -> Result<()> {
    let mut files = vec![values_table()?];
    let helm = Helm::fetch()?;
    files.extend(plain_manifests(&helm)?);
    files.extend(snapshots(&helm)?);
    let changed = files
        .into_iter()
        .filter(|(path, text)| fs::read_to_string(path).ok().as_ref() != Some(text))
        .collect::<Vec<_>>();
    for (path, text) in &changed {
        println!("{}", path.strip_prefix(root()).unwrap_or(path).display());
        if !flags.check {
            write(path, text)?;
        }
    }
    if flags.check && !changed.is_empty() {
        bail!("these files are not what the chart renders: run `cargo xtask manifests`");
    }
    Ok(())
}

/// Helm, and the version of Kubernetes that it renders for.
struct Helm {
    program: PathBuf,
    kube_version: String,
}

impl Helm {
    fn fetch() -> Result<Self> {
        Ok(Self {
            program: fetch::program(Program::Helm)?,
            kube_version: fetch::version(Program::Kubectl)?,
        })
    }

    /// Returns the objects that the chart renders, without what belongs to Helm alone.
    fn template(&self, values: &[&str]) -> Result<String> {
        let template = ["template", RELEASE, CHART, "--namespace=kube-system"];
        Ok(without_helm(&self.run(&template, values)?))
    }

    fn run(&self, arguments: &[&str], values: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .args(["--kube-version", &self.kube_version])
            .args(values)
            .current_dir(root())
            .stdin(Stdio::null());
        let output = command
            .output()
            .with_context(|| format!("cannot start {}", command_line(&command)))?;
        if !output.status.success() {
            bail!(
                "{}: {}{}",
                command_line(&command),
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
        }
        String::from_utf8(output.stdout).context("the output of helm is not UTF-8")
    }
}

fn plain_manifests(helm: &Helm) -> Result<Vec<(PathBuf, String)>> {
    let mut files = Vec::new();
    for plain in &PLAIN {
        let rendered = helm.template(&["--set", plain.values])?;
        let rendered = match plain.kind {
            Some(kind) => documents_of_kind(&rendered, kind),
            None => rendered,
        };
        let text = format!("{}{ORIGIN}{rendered}", plain.about);
        let paths = plain
            .paths
            .iter()
            .map(|path| root().join("deploy").join(path));
        files.extend(paths.map(|path| (path, text.clone())));
    }
    Ok(files)
}

/// Renders the chart with each of its values files, after a strict lint.
fn snapshots(helm: &Helm) -> Result<Vec<(PathBuf, String)>> {
    let folder = root().join(CHART).join("ci");
    let entries = fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let name = file
            .strip_suffix(VALUES_SUFFIX)
            .with_context(|| format!("{} is no values file", path.display()))?;
        let values = format!("--values={}", path.display());
        helm.run(&["lint", "--strict", CHART], &[&values])?;
        let snapshot = root()
            .join("e2e/snapshots/chart")
            .join(format!("{name}.yaml"));
        files.push((snapshot, helm.template(&[&values])?));
    }
    files.sort();
    Ok(files)
}

/// Returns the README of the chart with the table of its values.
fn values_table() -> Result<(PathBuf, String)> {
    let folder = root().join(CHART);
    let path = folder.join("README.md");
    let readme = read(&path)?;
    let table = values::table(&read(&folder.join("values.yaml"))?)?;
    Ok((path, values::replace(&readme, &table)?))
}

/// Removes the comments about templates, and the labels that say that Helm manages an object.
fn without_helm(rendered: &str) -> String {
    let kept = rendered.lines().filter(|line| {
        let line = line.trim_start();
        ![
            "# Source:",
            "helm.sh/chart:",
            "app.kubernetes.io/managed-by:",
        ]
        .iter()
        .any(|start| line.starts_with(start))
    });
    let text: String = kept.flat_map(|line| [line.trim_end(), "\n"]).collect();
    text.trim_start_matches("---\n").to_owned()
}

fn documents_of_kind(rendered: &str, kind: &str) -> String {
    let line = format!("kind: {kind}");
    let documents = rendered.split("---\n");
    let found: Vec<&str> = documents
        .filter(|document| document.lines().any(|found| found == line))
        .collect();
    found.join("---\n")
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    }
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_comments_of_helm_are_removed() {
        let rendered = "---\n# Source: a.yaml\n# Why.\nkind: A\nlabels:\n  helm.sh/chart: x-1\n  \
                        app.kubernetes.io/managed-by: Helm\n  app.kubernetes.io/name: x\n---\nkind: B\n";
        assert_eq!(
            without_helm(rendered),
            "# Why.\nkind: A\nlabels:\n  app.kubernetes.io/name: x\n---\nkind: B\n"
        );
    }

    #[test]
    fn documents_are_selected_by_kind() {
        let rendered = "kind: A\nx: 1\n---\nkind: B\n---\nspec:\n  kind: A\n";
        assert_eq!(documents_of_kind(rendered, "A"), "kind: A\nx: 1\n");
    }

    #[test]
    fn the_readme_of_the_chart_has_the_table_of_its_values() {
        let (path, wanted) = values_table().unwrap();
        let same = read(&path).unwrap() == wanted;
        assert!(
            same,
            "run `cargo xtask manifests`: the table of values is:\n{wanted}"
        );
    }
}
