//! Rules of the whole repository: its stages, its files, its documents.
#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod chart;
mod commands;
mod documents;
mod files;
mod links;
mod manifests;
mod monitoring;
mod promql;
mod stages;
mod workflows;

use std::path::{Path, PathBuf};
use std::process::Command;

/// Read at run time: clones may share a target folder, and with it this binary.
fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").unwrap();
    Path::new(&manifest).parent().unwrap().to_path_buf()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns every tracked or untracked file that is not ignored, as paths from the root.
fn tracked() -> Vec<String> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "git ls-files: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut files: Vec<String> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .filter(|file| root().join(file).is_file())
        .collect();
    files.sort();
    files.dedup();
    files
}

fn has_extension(file: &str, extension: &str) -> bool {
    Path::new(file)
        .extension()
        .is_some_and(|found| found == extension)
}
