//! The program by the name of a kubectl plugin, and the files of a release.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{kubevitals, output};

fn link(folder: &Path) -> PathBuf {
    let link = folder.join("kubectl-vitals");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_kubevitals"), &link).unwrap();
    link
}

#[test]
fn help_of_the_plugin_is_that_of_a_kubectl_command() {
    let folder = tempfile::tempdir().unwrap();
    let link = link(folder.path());
    let help = |args: &[&str]| {
        let (code, stdout, stderr) = output(Command::new(&link).args(args).env("NO_COLOR", "1"));
        assert_eq!((code, stderr.as_str()), (0, ""));
        stdout
    };
    insta::assert_snapshot!(help(&["-h"]));
    let explain = help(&["explain", "--help"]);
    assert!(
        explain.contains("Usage: kubectl vitals explain"),
        "{explain}"
    );
    assert!(
        explain.contains("\n  kubectl vitals explain pod "),
        "{explain}"
    );
    assert!(!explain.contains("  kubevitals "), "{explain}");
}

#[test]
fn the_plugin_runs_the_commands_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let mut explain = Command::new(link(folder.path()));
    explain.args(["explain", "pod", "web-0", "--kubeconfig=/nowhere"]);
    let (code, _, stderr) = output(&mut explain);
    assert_eq!(code, 64, "{stderr}");
    assert!(stderr.contains("/nowhere"), "{stderr}");
}

/// The pages and completions of a release describe the shipped program, which has no simulated
/// cluster.
#[test]
fn release_files_name_only_what_is_shipped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let (code, _, stderr) = output(&mut kubevitals(&["dist-files", path]));
    assert_eq!((code, stderr.as_str()), (0, ""));
    let mut files: Vec<String> = Vec::new();
    for kind in ["completions", "man"] {
        for entry in std::fs::read_dir(folder.path().join(kind)).unwrap() {
            let entry = entry.unwrap();
            files.push(format!("{kind}/{}", entry.file_name().to_string_lossy()));
            let text = std::fs::read_to_string(entry.path()).unwrap();
            for word in [
                "pods-per-node",
                "dist-files",
                "kubevitals demo",
                "kubevitals sim",
            ] {
                assert!(!text.contains(word), "{:?} contains {word}", entry.path());
            }
        }
    }
    files.sort();
    insta::assert_snapshot!("release_files", files.join("\n"));
    let page = std::fs::read_to_string(folder.path().join("man/kubevitals-server.1")).unwrap();
    assert!(page.contains("metric\\-resolution"), "{page}");
}
