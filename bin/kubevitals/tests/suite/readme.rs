//! The commands of the README do what it says.

use std::path::Path;

use crate::demo::Running;

/// Found at run time: clones may share a target folder, and with it this binary.
fn readme() -> String {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").unwrap();
    let root = Path::new(&manifest).ancestors().nth(2).unwrap();
    std::fs::read_to_string(root.join("README.md")).unwrap()
}

#[test]
fn the_first_command_runs_until_ctrl_c_and_exits_cleanly() {
    let readme = readme();
    let command = readme
        .lines()
        .find_map(|line| line.strip_prefix("cargo run --release -- "));
    let args: Vec<&str> = command.unwrap().split_whitespace().collect();
    assert_eq!(args, ["demo"]);
    let demo = Running::start(&args);
    assert!(demo.line("a simulated cluster of").contains("5 nodes"));
    demo.stop("-INT");
}

#[test]
fn the_example_configuration_is_accepted() {
    let readme = readme();
    let (_, rest) = readme.split_once("```yaml\n").unwrap();
    let (yaml, _) = rest.split_once("```").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("kubevitals.yaml");
    std::fs::write(&file, yaml).unwrap();
    let config = format!("--config={}", file.display());
    let demo = Running::start(&["demo", &config]);
    assert!(demo.line("a simulated cluster of").contains("20 nodes"));
    demo.stop("-INT");
}

#[test]
fn the_sim_command_accepts_the_flags_that_are_shown() {
    let readme = readme();
    let line = readme
        .lines()
        .find_map(|line| line.strip_prefix("kubevitals sim "))
        .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("sim.kubeconfig");
    // The same flags with a smaller cluster.
    let line = line.replace("5000", "3").replace("30", "2");
    let line = line.replace("sim.kubeconfig", file.to_str().unwrap());
    let args: Vec<&str> = std::iter::once("sim")
        .chain(line.split_whitespace())
        .collect();
    let sim = Running::start(&args);
    assert!(sim.line("3 nodes and").contains("API server https://"));
    assert!(file.exists());
    sim.stop("-INT");
}
