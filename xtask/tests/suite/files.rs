//! Limits of files: their length, their width, and which tests they may leave out.

use crate::{has_extension, read, tracked};

/// Beyond this a file has more than one concern.
const MAX_LINES: usize = 600;

/// `main.rs` installs the crypto provider, parses, and calls a role.
const MAX_LINES_OF_MAIN: usize = 40;

/// Width limit of comments and Markdown; rustfmt keeps code within the same.
const MAX_COLUMNS: usize = 100;

fn lines(file: &str) -> usize {
    read(file).lines().count()
}

fn is_test(file: &str) -> bool {
    file.contains("/tests/") || file.ends_with("/tests.rs")
}

#[test]
fn main_stays_short() {
    let lines = lines("bin/kubevitals/src/main.rs");
    assert!(
        lines <= MAX_LINES_OF_MAIN,
        "main.rs has {lines} lines: wiring belongs in the library"
    );
}

#[test]
fn files_stay_short() {
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
    // One binary per file would link all dependencies once per file.
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
fn cargo_test_leaves_out_only_the_end_to_end_tests() {
    let left: Vec<String> = tracked()
        .into_iter()
        .filter(|file| file.ends_with("Cargo.toml") && !file.starts_with("fuzz/"))
        .filter(|file| read(file).lines().any(|line| line.trim() == "test = false"))
        .collect();
    assert_eq!(left, ["e2e/Cargo.toml"]);
    assert!(
        read(".ci/run").contains("\ncargo xtask e2e\n"),
        "CI does not run them"
    );
}

#[test]
fn no_test_is_ignored() {
    // In two parts, so that this file does not match.
    let needle = concat!("#[", "ignore");
    let ignored: Vec<String> = tracked()
        .into_iter()
        .filter(|file| has_extension(file, "rs") && read(file).contains(needle))
        .collect();
    assert!(ignored.is_empty(), "ignored tests: {ignored:#?}");
}

/// Returns whether a line cannot be wrapped: a heading, a table, a URL or a link, or one long word.
fn is_unbreakable(text: &str) -> bool {
    let text = text.trim_start();
    text.starts_with(['|', '#'])
        || text.contains("://")
        || text.contains("](")
        || text.split_whitespace().count() <= 2
}

/// Returns the numbers of the lines of prose that are too wide. Code fences are not prose.
fn wide_lines(text: &str, in_rust: bool) -> Vec<usize> {
    let mut in_fence = false;
    let mut wide = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let content = if in_rust { comment(line) } else { Some(line) };
        let Some(content) = content else {
            in_fence = false;
            continue;
        };
        if content.trim_start().starts_with("```") {
            in_fence = !in_fence;
        } else if !in_fence && line.chars().count() > MAX_COLUMNS && !is_unbreakable(content) {
            wide.push(index + 1);
        }
    }
    wide
}

/// Returns the text of a line that is a comment of Rust.
fn comment(line: &str) -> Option<&str> {
    let line = line.trim_start().strip_prefix("//")?;
    Some(line.strip_prefix(['/', '!']).unwrap_or(line))
}

#[test]
fn comments_and_documents_are_wrapped() {
    let mut wide = Vec::new();
    for file in tracked() {
        let lines = if has_extension(&file, "rs") {
            wide_lines(&read(&file), true)
        } else if has_extension(&file, "md") {
            wide_lines(&read(&file), false)
        } else {
            continue;
        };
        wide.extend(lines.iter().map(|line| format!("{file}:{line}")));
    }
    assert!(wide.is_empty(), "over {MAX_COLUMNS} columns: {wide:#?}");
}

#[test]
fn headings_tables_fences_and_links_may_be_wide() {
    let prose = "one two three ".repeat(10);
    assert_eq!(wide_lines(&format!("short\n{prose}\n"), false), [2]);
    assert_eq!(wide_lines(&format!("    /// {prose}\n"), true), [1]);
    for exempt in [
        format!("| {prose} |"),
        format!("```sh\n{prose}\n```"),
        format!("see [{prose}](file.md)"),
        format!("https://example.com/{prose}"),
        "x".repeat(200),
    ] {
        assert_eq!(wide_lines(&exempt, false), Vec::<usize>::new(), "{exempt}");
    }
    assert!(wide_lines(&format!("let text = \"{prose}\";\n"), true).is_empty());
}
