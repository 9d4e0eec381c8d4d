//! The commands of the README do what it says.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::{kubevitals, output};

fn readme() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap();
    std::fs::read_to_string(root.join("README.md")).unwrap()
}

#[test]
fn the_first_command_runs_until_ctrl_c_and_leaves_cleanly() {
    let readme = readme();
    let command = readme
        .lines()
        .find_map(|line| line.strip_prefix("cargo run --release -- "));
    let args: Vec<&str> = command.unwrap().split_whitespace().collect();
    assert_eq!(args, ["demo"]);

    let mut demo = kubevitals(&args)
        .env("KUBEVITALS_SCRAPE_INTERVAL", "20ms")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let told: Vec<String> = lines
        .by_ref()
        .take_while(|line| line != "stop with Ctrl-C")
        .collect();
    assert!(
        told.iter().any(|line| line.starts_with("NAMESPACE")),
        "{told:#?}"
    );

    let id = demo.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &id])
            .status()
            .unwrap()
            .success()
    );
    assert!(demo.wait().unwrap().success());
    assert_eq!(lines.next(), None);
}

#[test]
fn the_example_configuration_is_one() {
    let readme = readme();
    let (_, rest) = readme.split_once("```yaml\n").unwrap();
    let (yaml, _) = rest.split_once("```").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("kubevitals.yaml");
    std::fs::write(&file, yaml).unwrap();
    let config = format!("--config={}", file.display());
    let args = ["demo", "--once", "--scrape-interval=20ms", &config];
    let (code, stdout, stderr) = output(&mut kubevitals(&args));
    assert_eq!(code, 0, "{stderr}");
    let rows = stdout.lines().filter(|line| line.contains(" app ")).count();
    assert_eq!(rows, 40, "{stdout}");
    assert!(
        stderr.lines().all(|line| line.starts_with('{')),
        "logging-format: json\n{stderr}"
    );
}
