//! The documents name files, crates and commands that exist.

use std::process::Command;

use crate::{has_extension, read, tracked};

/// Returns the lines of shell in the fenced blocks of a document, without comments.
fn shell_lines(document: &str) -> Vec<String> {
    let mut inside = false;
    let mut lines = Vec::new();
    for line in document.lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            inside = !inside && matches!(language.trim(), "sh" | "console" | "bash");
        } else if inside && !line.trim_start().starts_with('#') && !line.trim().is_empty() {
            lines.push(line.trim().trim_start_matches("$ ").to_owned());
        }
    }
    lines
}

fn documents() -> Vec<String> {
    tracked()
        .into_iter()
        .filter(|file| has_extension(file, "md"))
        .collect()
}

#[test]
fn every_documented_xtask_exists() {
    let mut seen = 0;
    for document in documents() {
        for line in shell_lines(&read(&document)) {
            let Some(task) = line.strip_prefix("cargo xtask ") else {
                continue;
            };
            let name = task.split_whitespace().next().unwrap();
            // Not `NAME --help`, for which cargo would build the cluster tool.
            let help = Command::new(env!("CARGO_BIN_EXE_xtask"))
                .args(["help", name])
                .output();
            assert!(
                help.unwrap().status.success(),
                "{document}: cargo xtask {name}"
            );
            seen += 1;
        }
    }
    assert!(seen > 0, "the README mentions `cargo xtask test`");
}

#[test]
fn every_decision_is_in_the_index() {
    let index = read("docs/adr/README.md");
    for file in tracked() {
        let Some(name) = file.strip_prefix("docs/adr/") else {
            continue;
        };
        if name != "README.md" {
            assert!(
                index.contains(&format!("]({name})")),
                "docs/adr/README.md lacks {name}"
            );
        }
    }
}

#[test]
fn the_table_of_end_to_end_tests_names_every_module() {
    let text = read("docs/real-cluster.md");
    for file in tracked() {
        let name = file.strip_prefix("e2e/tests/suite/");
        let Some(name) = name.and_then(|name| name.strip_suffix(".rs")) else {
            continue;
        };
        if name != "main" && !name.contains('/') {
            assert!(
                text.contains(&format!("| `{name}` |")),
                "docs/real-cluster.md lacks {name}"
            );
        }
    }
}

#[test]
fn the_architecture_names_every_crate() {
    let text = read("ARCHITECTURE.md");
    for file in tracked() {
        let Some(folder) = file.strip_suffix("/Cargo.toml") else {
            continue;
        };
        assert!(
            text.contains(&format!("`{folder}`")),
            "ARCHITECTURE.md does not name {folder}"
        );
    }
}
