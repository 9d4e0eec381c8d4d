//! The flags of shipped manifests, and of what the Helm chart renders.

use std::path::Path;

use crate::{kubevitals, output};

/// A file that does not exist: it is read after all flags are validated.
const MISSING: &str = "/nonexistent/kubeconfig";

/// Returns the arguments of each container of a manifest.
fn arguments(manifest: &str) -> Vec<Vec<&str>> {
    let mut lines = manifest.lines().map(str::trim);
    let mut found = Vec::new();
    while lines.by_ref().any(|line| line == "args:") {
        let flags = lines.clone().map_while(|line| line.strip_prefix("- "));
        found.push(flags.collect());
    }
    found
}

#[test]
fn every_flag_of_the_manifests_is_accepted() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut seen = 0;
    for folder in ["deploy", "e2e/snapshots/chart"] {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "yaml") {
                continue;
            }
            // The kubelet replaces these.
            let text = std::fs::read_to_string(&path).unwrap();
            let text = text.replace("$(POD_IP)", "192.0.2.1");
            let text = text.replace("$(NODE_NAME)", "node-1");
            for mut flags in arguments(&text) {
                flags.extend(["--kubeconfig", MISSING]);
                let (_, _, stderr) = output(&mut kubevitals(&flags));
                assert!(stderr.contains(MISSING), "{}: {stderr}", path.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 10, "{seen} containers");
}
