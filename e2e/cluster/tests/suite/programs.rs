//! The programs of `e2e/kube` and their table in the documents.

use std::process::Command;

use xtask::step::root;

/// Returns program, version and folder of each row of the table in the documents.
fn documented() -> Vec<(String, String, String)> {
    let code = |cell: &str| cell.trim().trim_matches('`').to_owned();
    let text = std::fs::read_to_string(root().join("docs/real-cluster.md")).unwrap();
    text.lines()
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
fn the_documented_versions_are_those_of_go_mod() {
    let cache = tempfile::tempdir().unwrap();
    let list = Command::new(env!("CARGO_BIN_EXE_kubevitals-e2e-cluster"))
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
    let mut seen = 0;
    for entry in std::fs::read_dir(root().join("e2e/kube")).unwrap() {
        let module = entry.unwrap().path();
        let folder = format!("e2e/kube/{}", module.file_name().unwrap().display());
        assert!(folders.contains(&folder), "{folder}");
        for file in ["go.mod", "go.sum"] {
            assert!(module.join(file).is_file(), "{folder} has no {file}");
        }
        seen += 1;
    }
    assert!(seen >= 6, "{seen} modules");
}

#[test]
fn an_unknown_program_is_rejected_with_the_known_names() {
    let output = Command::new(env!("CARGO_BIN_EXE_kubevitals-e2e-cluster"))
        .args(["fetch", "cubelet"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("kubelet"), "{said}");
}

#[test]
fn a_missing_go_is_reported_in_one_line() {
    let cache = tempfile::tempdir().unwrap();
    let empty = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_kubevitals-e2e-cluster"))
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
