//! Files stay small enough to be read in one go.

use crate::{has_extension, read, tracked};

/// A file beyond this holds more than one thing.
const MAX_LINES: usize = 600;

/// `main.rs` installs the crypto provider, parses, and calls a role.
const MAX_LINES_OF_MAIN: usize = 40;

fn lines(file: &str) -> usize {
    read(file).lines().count()
}

fn is_test(file: &str) -> bool {
    file.contains("/tests/") || file.ends_with("/tests.rs")
}

#[test]
fn main_only_starts_things() {
    let lines = lines("bin/kubevitals/src/main.rs");
    assert!(
        lines <= MAX_LINES_OF_MAIN,
        "main.rs has {lines} lines: wiring belongs in the library"
    );
}

#[test]
fn no_file_holds_more_than_one_thing() {
    let long: Vec<String> = tracked()
        .iter()
        .filter(|file| has_extension(file, "rs") && !is_test(file))
        .map(|file| (file, lines(file)))
        .filter(|(_, lines)| *lines > MAX_LINES)
        .map(|(file, lines)| format!("{file}: {lines} lines"))
        .collect();
    assert!(long.is_empty(), "over {MAX_LINES} lines: {long:#?}");
}

#[test]
fn each_crate_has_one_test_binary_at_most() {
    // A binary for each file would link the whole tree once for each file, on two cores.
    let stray: Vec<String> = tracked()
        .into_iter()
        .filter(|file| {
            let mut parts = file.rsplit('/');
            let is_rust = parts.next().is_some_and(|name| has_extension(name, "rs"));
            is_rust && parts.next() == Some("tests") && !file.contains("/src/")
        })
        .collect();
    assert!(stray.is_empty(), "put these into tests/suite: {stray:#?}");
}

#[test]
fn only_the_tests_that_need_a_real_cluster_are_left_to_another_command() {
    let left: Vec<String> = tracked()
        .into_iter()
        .filter(|file| file.ends_with("Cargo.toml") && !file.starts_with("fuzz/"))
        .filter(|file| read(file).lines().any(|line| line.trim() == "test = false"))
        .collect();
    assert_eq!(left, ["e2e/Cargo.toml"]);
    assert!(
        read(".ci/run").contains("\ncargo xtask e2e\n"),
        "who runs them?"
    );
}

#[test]
fn no_test_is_switched_off() {
    // Written in two parts, so that this file does not find itself.
    let needle = concat!("#[", "ignore");
    let ignored: Vec<String> = tracked()
        .into_iter()
        .filter(|file| has_extension(file, "rs") && read(file).contains(needle))
        .collect();
    assert!(
        ignored.is_empty(),
        "a test that does not run proves nothing: {ignored:#?}"
    );
}
