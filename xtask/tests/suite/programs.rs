//! The real programs are those that the documents say.

use std::process::Command;

use crate::{read, tracked};

/// Program, version and folder, as the table in the documents has them.
fn documented() -> Vec<(String, String, String)> {
    let code = |cell: &str| cell.trim().trim_matches('`').to_owned();
    read("docs/real-cluster.md")
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix('|')?.split('|');
            let (name, version, folder) = (cells.next()?, cells.next()?, cells.next()?);
            let folder = code(folder);
            folder
                .starts_with("e2e/kube/")
                .then(|| (code(name), code(version), folder))
        })
        .collect()
}

#[test]
fn the_table_of_programs_agrees_with_what_go_mod_says() {
    let cache = tempfile::tempdir().unwrap();
    let list = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["fetch", "--list"])
        .env("KUBEVITALS_CACHE", cache.path())
        .output()
        .unwrap();
    assert!(list.status.success(), "{list:?}");
    let listed: Vec<(String, String)> = String::from_utf8(list.stdout)
        .unwrap()
        .lines()
        .map(|line| {
            let mut words = line.split_whitespace().map(str::to_owned);
            (words.next().unwrap(), words.next().unwrap())
        })
        .collect();
    let documented: Vec<(String, String)> = documented()
        .into_iter()
        .map(|(name, version, _)| (name, version))
        .collect();
    assert_eq!(documented, listed);
}

#[test]
fn every_module_is_pinned_and_documented() {
    let folders: Vec<String> = documented()
        .into_iter()
        .map(|(_, _, folder)| folder)
        .collect();
    let files = tracked();
    let mut seen = 0;
    for file in files.iter().filter(|file| file.starts_with("e2e/kube/")) {
        let Some(folder) = file.strip_suffix("/go.mod") else {
            continue;
        };
        assert!(folders.iter().any(|known| known == folder), "{folder}");
        assert!(
            files.contains(&format!("{folder}/go.sum")),
            "{folder} has no go.sum"
        );
        seen += 1;
    }
    assert!(seen >= 6, "{seen} modules");
}

#[test]
fn a_program_that_is_not_known_is_refused_with_the_names_that_are() {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["fetch", "cubelet"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("kubelet"), "{said}");
}

#[test]
fn without_go_there_is_one_line_and_a_failure() {
    let cache = tempfile::tempdir().unwrap();
    let empty = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["fetch", "etcd"])
        .env("KUBEVITALS_CACHE", cache.path())
        .env("PATH", empty.path())
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("there is no `go`"), "{said}");
}
