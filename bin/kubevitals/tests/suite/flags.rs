//! Flags of the server, each by what it changes on a simulated cluster. A test fails if the wiring
//! of its flag is removed.

mod access;
mod kubelets;
mod reviews;
mod serving;

use std::path::Path;

use kubevitals_sim::api::{Rule, User};
use kubevitals_sim::cluster::SimCluster;
use tempfile::TempDir;

/// Files that flags name.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Writes a file and returns `--flag=path`.
    fn flag(&self, flag: &str, contents: &str) -> String {
        let file = self.path(flag);
        std::fs::write(&file, contents).unwrap();
        format!("--{flag}={}", file.display())
    }

    fn path(&self, flag: &str) -> Box<Path> {
        self.0.path().join(flag).into()
    }
}

/// A token of a user in a group, or in none.
fn token(cluster: &SimCluster, user: &str, group: Option<&str>) -> String {
    let user = User::new(user, group);
    cluster.api().issue_token(user, None).unwrap()
}

fn allow<'a>(
    cluster: &SimCluster,
    user: &str,
    verbs: impl IntoIterator<Item = &'a str>,
    group: &str,
    resources: impl IntoIterator<Item = &'a str>,
) {
    let rule = Rule::for_user(user, verbs, group, resources);
    cluster.api().allow(rule);
}

/// A kubeconfig of a user who may do what the server needs to watch, and nothing else.
fn watcher(cluster: &SimCluster) -> String {
    let verbs = ["get", "list", "watch"];
    allow(cluster, "watcher", verbs, "", ["nodes", "pods"]);
    let token = token(cluster, "watcher", None);
    cluster.api().kubeconfig_for_token(&token)
}
