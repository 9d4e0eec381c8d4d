//! The folder of a package is its stage, and data flows one way: sources → store → serve and
//! export. Only the binary and the roles wire stages together.

use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use crate::root;

/// The stage of a package, given by its folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Base,
    /// `kube-client-metrics`, `kube-lease`, `kube-workqueue`: published on their own, so they may
    /// use nothing of ours but each other.
    Published,
    Sources,
    Store,
    Serve,
    Export,
    /// Libraries of subcommands: wire stages as the binary does, and only the binary uses them.
    Roles,
    /// The virtual node: a whole kubelet from sources to serve.
    Node,
    Sim,
    /// The libraries of the project's commands, for other tools.
    Tools,
    /// Programs, benches and tests: may use everything, and nothing may use them.
    Top,
}

#[derive(Debug, Clone, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_root: String,
}

#[derive(Debug, Clone, Deserialize)]
struct Package {
    name: String,
    manifest_path: String,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Clone, Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
    path: Option<String>,
}

impl Stage {
    fn of(folder: &str) -> Option<Self> {
        let mut parts = folder.split('/');
        Some(match (parts.next()?, parts.next()) {
            ("crates", Some("base")) => Self::Base,
            ("crates", Some("kube-client-metrics" | "kube-lease" | "kube-workqueue")) => {
                Self::Published
            }
            ("crates", Some("sources")) => Self::Sources,
            ("crates", Some("store")) => Self::Store,
            ("crates", Some("serve")) => Self::Serve,
            ("crates", Some("export")) => Self::Export,
            ("crates", Some("roles")) => Self::Roles,
            ("crates", Some("node")) => Self::Node,
            ("crates", Some("sim")) => Self::Sim,
            ("xtask", _) => Self::Tools,
            ("bin" | "bench" | "e2e" | "fuzz", _) => Self::Top,
            _ => return None,
        })
    }

    /// Whether a package of this stage may depend on one of the other.
    fn may_use(self, other: Self) -> bool {
        use Stage::{Base, Export, Node, Published, Roles, Serve, Sim, Sources, Store, Tools, Top};
        match self {
            Base => other == Base,
            Published => other == Published,
            Tools => other == Tools,
            Sources => matches!(other, Base | Published | Sources),
            Store => matches!(other, Base | Store),
            Serve => matches!(other, Base | Published | Store | Serve),
            Export => matches!(other, Base | Published | Store | Export),
            Roles => !matches!(other, Roles | Sim | Tools | Top),
            Node => matches!(other, Base | Published | Sources | Store | Serve | Node),
            Sim => matches!(other, Base | Sim),
            Top => other != Top,
        }
    }
}

/// Returns a line for each forbidden edge.
fn forbidden_edges(metadata: &Metadata) -> Vec<String> {
    let folder = |path: &str| {
        let path = Path::new(path)
            .strip_prefix(&metadata.workspace_root)
            .ok()?;
        Some(path.to_str()?.to_owned())
    };
    let mut found = Vec::new();
    for package in &metadata.packages {
        let path = folder(&package.manifest_path).unwrap_or_default();
        let Some(stage) = Stage::of(&path) else {
            found.push(format!("{}: {path} is in no stage's folder", package.name));
            continue;
        };
        for dependency in &package.dependencies {
            let Some(path) = &dependency.path else {
                continue;
            };
            // Any test may use the simulated cluster, and sources to read recorded input.
            let in_tests = dependency.kind.as_deref() == Some("dev");
            match folder(path).as_deref().and_then(Stage::of) {
                Some(other) if stage.may_use(other) => {}
                Some(Stage::Sim | Stage::Sources) if in_tests => {}
                other => found.push(format!(
                    "{} ({stage:?}) must not depend on {} ({other:?})",
                    package.name, dependency.name
                )),
            }
        }
    }
    found
}

fn metadata() -> Metadata {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

fn package(folder: &str, dependencies: &[(&str, Option<&str>)]) -> Package {
    Package {
        name: folder.rsplit('/').next().unwrap().to_owned(),
        manifest_path: format!("/repo/{folder}/Cargo.toml"),
        dependencies: dependencies
            .iter()
            .map(|(path, kind)| Dependency {
                name: path.rsplit('/').next().unwrap().to_owned(),
                kind: kind.map(str::to_owned),
                path: Some(format!("/repo/{path}")),
            })
            .collect(),
    }
}

fn edges(packages: Vec<Package>) -> Vec<String> {
    forbidden_edges(&Metadata {
        packages,
        workspace_root: "/repo".to_owned(),
    })
}

#[test]
fn this_workspace_keeps_the_stages() {
    assert_eq!(forbidden_edges(&metadata()), Vec::<String>::new());
}

#[test]
fn a_source_that_knows_serve_is_named() {
    let found = edges(vec![package(
        "crates/sources/watch",
        &[("crates/serve/web", None)],
    )]);
    assert_eq!(
        found,
        ["watch (Sources) must not depend on web (Some(Serve))"]
    );
}

#[test]
fn no_stage_depends_on_a_later_one_or_bypasses_the_store() {
    for (from, to) in [
        ("crates/base/model", "crates/store/usage"),
        ("crates/store/usage", "crates/sources/watch"),
        ("crates/store/usage", "crates/serve/metrics-api"),
        ("crates/serve/metrics-api", "crates/export/otlp"),
        ("crates/serve/metrics-api", "crates/sources/scrape"),
        ("crates/export/otlp", "crates/serve/web"),
        ("crates/kube-client-metrics", "crates/base/model"),
        ("crates/kube-lease", "crates/base/model"),
        ("crates/sources/watch", "bin/kubevitals"),
        ("crates/export/jsonl", "crates/roles/explain"),
        ("crates/roles/explain", "crates/roles/transitions"),
        ("crates/roles/explain", "crates/sim"),
        ("crates/sources/watch", "crates/sim"),
        ("crates/sim", "crates/sources/watch"),
        ("crates/sim", "xtask"),
        ("xtask", "e2e/cluster"),
        ("bench", "e2e"),
    ] {
        assert_eq!(
            edges(vec![package(from, &[(to, None)])]).len(),
            1,
            "{from} → {to}"
        );
    }
}

#[test]
fn a_test_may_use_the_simulated_cluster_and_sources_but_no_other_stage() {
    let dev = Some("dev");
    for (from, to) in [
        ("crates/sources/watch", "crates/sim"),
        ("crates/store/usage", "crates/sources/watch"),
    ] {
        assert!(edges(vec![package(from, &[(to, dev)])]).is_empty());
    }
    assert_eq!(
        edges(vec![package(
            "crates/sources/watch",
            &[("crates/serve/web", dev)]
        )])
        .len(),
        1
    );
}

#[test]
fn a_package_outside_the_stages_is_named() {
    assert_eq!(edges(vec![package("crates/misc/util", &[])]).len(), 1);
}

#[test]
fn the_model_stays_pure() {
    let metadata = metadata();
    let model = metadata
        .packages
        .iter()
        .find(|p| p.name == "kubevitals-model")
        .unwrap();
    let used: Vec<&str> = model
        .dependencies
        .iter()
        .filter(|dependency| dependency.kind.as_deref() != Some("dev"))
        .map(|dependency| dependency.name.as_str())
        .filter(|name| !["hashbrown", "itoa", "parking_lot", "thiserror"].contains(name))
        .collect();
    assert!(
        used.is_empty(),
        "the model is types and arithmetic; it must not use {used:?}"
    );
}
