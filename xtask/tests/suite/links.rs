//! Links between the documents: files, sections and pictures exist, and the book has every page.

use std::collections::BTreeSet;

use xtask::markdown::{self, Link};

use crate::{has_extension, read, root, tracked};

/// The table of contents of the book.
const SUMMARY: &str = "docs/SUMMARY.md";

/// Returns the anchors of the headings of a document.
pub(crate) fn anchors(document: &str) -> BTreeSet<String> {
    markdown::anchors(document).into_iter().collect()
}

/// Returns the problem of a link, if it has one.
fn problem(document: &str, link: &Link<'_>) -> Option<String> {
    if link.is_external() {
        return None;
    }
    let folder = root().join(document).parent().unwrap().to_path_buf();
    let file = if link.path.is_empty() {
        root().join(document)
    } else {
        folder.join(link.path)
    };
    if !file.exists() {
        return Some(format!("{document}: {} does not exist", link.path));
    }
    let fragment = link.fragment?;
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let missing = !anchors(&text).contains(fragment);
    missing.then(|| format!("{document}: {} has no section #{fragment}", file.display()))
}

#[test]
fn every_link_has_a_target() {
    let mut seen = 0;
    let mut problems = Vec::new();
    for document in tracked().iter().filter(|file| has_extension(file, "md")) {
        for link in markdown::links(&read(document)) {
            seen += 1;
            problems.extend(problem(document, &link));
        }
    }
    assert!(seen > 100, "{seen}");
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn a_dead_link_and_a_missing_section_are_found() {
    let of = |text: &str| {
        let links = markdown::links(text);
        links.iter().find_map(|link| problem("README.md", link))
    };
    assert_eq!(
        of("[a](docs/server.md#install) and [b](https://example.com/x)"),
        None
    );
    assert!(
        of("[a](docs/missing.md)")
            .unwrap()
            .contains("docs/missing.md")
    );
    assert!(
        of("[a](docs/server.md#missing)")
            .unwrap()
            .contains("#missing")
    );
    assert!(
        of("![picture](docs/missing.svg)")
            .unwrap()
            .contains("missing.svg")
    );
}

#[test]
fn every_page_is_in_the_book() {
    let summary = read(SUMMARY);
    let listed: BTreeSet<&str> = markdown::links(&summary)
        .iter()
        .map(|link| link.path)
        .collect();
    for file in tracked() {
        let Some(page) = file.strip_prefix("docs/") else {
            continue;
        };
        // Decisions are added by `cargo xtask book`.
        let is_page =
            has_extension(page, "md") && page != "SUMMARY.md" && !page.starts_with("adr/0");
        assert!(!is_page || listed.contains(page), "{SUMMARY} lacks {page}");
    }
}

#[test]
fn pictures_are_readable_in_light_and_dark() {
    for file in tracked().iter().filter(|file| has_extension(file, "svg")) {
        let picture = read(file);
        assert!(
            picture.contains("prefers-color-scheme:dark")
                || picture.contains("prefers-color-scheme: dark"),
            "{file} has no colours for dark pages"
        );
        assert!(picture.contains("role=\"img\""), "{file}");
        assert!(
            picture.contains("<title>") || file.ends_with("growth.svg"),
            "{file} has no title"
        );
    }
}
