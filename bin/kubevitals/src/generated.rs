//! Parts of the documents that are generated from the code. A test compares each with what the code
//! says now; with `KUBEVITALS_UPDATE_DOCS=1` it writes it instead.
//!
//! A part stands between `<!-- NAME: begin -->` and `<!-- NAME: end -->`. The integration tests
//! include this file too.

use std::path::{Path, PathBuf};

/// Set to write the documents instead of comparing them.
const UPDATE: &str = "KUBEVITALS_UPDATE_DOCS";

/// Whether the documents are being written.
pub(crate) fn is_updating() -> bool {
    std::env::var_os(UPDATE).is_some()
}

/// Compares a part of a document with its expected text, or writes it.
pub(crate) fn check(document: &str, name: &str, expected: &str) {
    let file = path(document);
    let text = std::fs::read_to_string(&file).unwrap();
    let (before, found, after) = split(&text, name);
    if is_updating() {
        std::fs::write(file, format!("{before}{expected}{after}")).unwrap();
        return;
    }
    assert!(
        found == expected,
        "{document} is not up to date; run `{UPDATE}=1 cargo test -p kubevitals`\n{}",
        difference(found, expected)
    );
}

/// Returns the lines that only one of two texts has.
fn difference(found: &str, expected: &str) -> String {
    let only = |sign: char, a: &str, b: &str| {
        let lines = a
            .lines()
            .filter(|line| !b.lines().any(|other| other == *line));
        let lines = lines.map(|line| format!("{sign} {line}\n"));
        lines.collect::<String>()
    };
    only('-', found, expected) + &only('+', expected, found)
}

/// The text up to a part, the part, and the rest.
fn split<'t>(text: &'t str, name: &str) -> (&'t str, &'t str, &'t str) {
    let begin = format!("<!-- {name}: begin -->\n");
    let end = format!("<!-- {name}: end -->");
    let start = text.find(&begin).unwrap() + begin.len();
    let (before, rest) = text.split_at(start);
    let (part, after) = rest.split_at(rest.find(&end).unwrap());
    (before, part, after)
}

/// The path of a document, found at run time: clones may share a target folder, and with it a test
/// binary.
pub(crate) fn path(document: &str) -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").unwrap();
    Path::new(&manifest).join("../..").join(document)
}
