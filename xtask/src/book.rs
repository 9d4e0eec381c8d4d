//! `cargo xtask book`: the documents as a book of web pages.
//!
//! ```text
//! docs/, ARCHITECTURE.md, … ──stage──► target/book/src ──mdbook──► target/book/html ──► links are checked
//! ```
//!
//! On GitHub the documents link to files outside of `docs`. The book has those that are pages of
//! their own; links to others become plain text.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use xtask::markdown;
use xtask::step::{self, Steps};

use crate::tool::Tool;

/// Without its server and its search, which need three times as many crates.
const MDBOOK: Tool = Tool {
    name: "mdbook",
    version: "0.5.4",
    flags: &["--no-default-features", "--debug"],
};

/// The documents outside of `docs` that are pages of the book.
const PROJECT_PAGES: [&str; 3] = ["ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"];

/// Their folder in the book.
const PROJECT: &str = "project";

/// The table of contents.
const SUMMARY: &str = "SUMMARY.md";

/// The folder of decisions. Only their index is in the table of contents.
const DECISIONS: &str = "adr";

pub(crate) fn run() -> Result<()> {
    let mut steps = Steps::default();
    let tool = steps.step("mdbook", || MDBOOK.installed())?;
    let result = steps.step("book", || build(&tool));
    steps.print();
    println!("{}", result?.join("index.html").display());
    Ok(())
}

fn build(mdbook: &Path) -> Result<PathBuf> {
    let root = step::root();
    let folder = target().join("book");
    let (source, pages) = (folder.join("src"), folder.join("html"));
    for old in [&source, &pages] {
        if old.exists() {
            fs::remove_dir_all(old).with_context(|| format!("removing {}", old.display()))?;
        }
    }
    stage(&root, &source)?;
    let mut build = Command::new(mdbook);
    step::run(
        build
            .arg("build")
            .arg(&source)
            .arg("--dest-dir")
            .arg(&pages),
    )?;
    let dead = dead_links(&pages)?;
    if !dead.is_empty() {
        bail!("dead links in the book:\n{}", dead.join("\n"));
    }
    Ok(pages)
}

/// The folder of build results, as cargo finds it.
fn target() -> PathBuf {
    let set = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    set.unwrap_or_else(|| step::root().join("target"))
}

/// Copies the documents, with links that fit the book.
fn stage(root: &Path, source: &Path) -> Result<()> {
    let mut files = Vec::new();
    list(&root.join("docs"), &mut files)?;
    files.extend(PROJECT_PAGES.map(|page| root.join(page)));
    let in_book = |file: &Path| -> Option<PathBuf> {
        let file = file.strip_prefix(root).ok()?;
        match file.strip_prefix("docs") {
            // The first page of a folder, whatever it is called on GitHub.
            Ok(page) if page.ends_with("README.md") => Some(page.with_file_name("index.md")),
            Ok(page) => Some(page.to_path_buf()),
            Err(_) => {
                let is_page = PROJECT_PAGES.iter().any(|page| Path::new(page) == file);
                is_page.then(|| Path::new(PROJECT).join(file))
            }
        }
    };
    for file in &files {
        let place = in_book(file).context("every listed file is part of the book")?;
        let copy = source.join(&place);
        fs::create_dir_all(copy.parent().unwrap_or(source))?;
        if file.extension().is_none_or(|extension| extension != "md") {
            fs::copy(file, &copy).with_context(|| format!("copying {}", file.display()))?;
            continue;
        }
        let text =
            fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        let folder = file.parent().unwrap_or(root);
        let text = if place == Path::new(SUMMARY) {
            with_decisions(&text, &root.join("docs"))?
        } else {
            text
        };
        let rewritten = rewrite(&text, |path| {
            let target = in_book(&normalized(&folder.join(path)))?;
            Some(relative(&place, &target))
        });
        fs::write(&copy, rewritten).with_context(|| format!("writing {}", copy.display()))?;
    }
    Ok(())
}

/// Adds the decisions to the table of contents, below their index.
fn with_decisions(summary: &str, docs: &Path) -> Result<String> {
    let mut files = Vec::new();
    list(&docs.join(DECISIONS), &mut files)?;
    files.sort();
    let mut out = String::new();
    for line in summary.lines() {
        out.push_str(line);
        out.push('\n');
        if !line.ends_with(&format!("({DECISIONS}/README.md)")) {
            continue;
        }
        for file in &files {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            if name == "README.md" {
                continue;
            }
            let text = fs::read_to_string(file)?;
            let title = text.lines().next().unwrap_or_default();
            let title = title.trim_start_matches("# ");
            writeln!(out, "  - [{title}]({DECISIONS}/{name})")?;
        }
    }
    Ok(out)
}

/// Replaces the targets of links. A link without a target in the book becomes its text.
fn rewrite(text: &str, target_in_book: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut copied = 0;
    for link in markdown::links(text) {
        if link.is_external() || link.path.is_empty() {
            continue;
        }
        let before = text.get(copied..link.start).unwrap_or_default();
        copied = link.end;
        if let Some(target) = target_in_book(link.path) {
            out.push_str(before);
            out.push_str(&target);
            if let Some(fragment) = link.fragment {
                out.push('#');
                out.push_str(fragment);
            }
        } else {
            // `[text](target)` up to the target.
            let before = before.trim_end_matches("](");
            let (prefix, label) = before.rsplit_once('[').unwrap_or((before, ""));
            out.push_str(prefix);
            out.push_str(label);
            copied += ")".len();
        }
    }
    out.push_str(text.get(copied..).unwrap_or_default());
    out
}

/// Returns the links between the pages that lead nowhere.
fn dead_links(pages: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    list(pages, &mut files)?;
    let exists: BTreeSet<&PathBuf> = files.iter().collect();
    let mut dead = Vec::new();
    for file in files
        .iter()
        .filter(|file| file.extension().is_some_and(|e| e == "html"))
    {
        // All chapters on one page, whose links mdBook rewrites; and a page for any address.
        if file.ends_with("print.html") || file.ends_with("404.html") {
            continue;
        }
        let html = fs::read_to_string(file)?;
        let attributes = ["href=\"", "src=\""]
            .into_iter()
            .flat_map(|name| html.split(name).skip(1));
        for target in attributes.filter_map(|rest| rest.split('"').next()) {
            let (path, fragment) = target.split_once('#').unwrap_or((target, ""));
            if path.contains(':') {
                continue;
            }
            let folder = file.parent().unwrap_or(pages);
            let linked = if path.is_empty() {
                file.clone()
            } else {
                normalized(&folder.join(path))
            };
            let has_fragment = || {
                let text = fs::read_to_string(&linked).unwrap_or_default();
                text.contains(&format!("id=\"{fragment}\""))
            };
            if !exists.contains(&linked) || (!fragment.is_empty() && !has_fragment()) {
                dead.push(format!("{}: {target}", file.display()));
            }
        }
    }
    Ok(dead)
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// Removes `.` and `..` without looking at the disk.
fn normalized(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

/// The path from one page to another, both from the root of the book.
fn relative(from: &Path, to: &Path) -> String {
    let up = from.components().count().saturating_sub(1);
    let to = to
        .components()
        .map(|part| part.as_os_str().to_string_lossy());
    let parts: Vec<_> = std::iter::repeat_n("..".into(), up).chain(to).collect();
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_pages_of_the_book_or_become_text() {
        let target = |path: &str| path.strip_suffix(".md").map(|page| format!("../{page}.md"));
        let text = "see [a](x.md#y), [the `b`](src/main.rs) and [c](https://example.com) [d](#e).";
        assert_eq!(
            rewrite(text, target),
            "see [a](../x.md#y), the `b` and [c](https://example.com) [d](#e)."
        );
    }

    #[test]
    fn paths_are_relative_to_their_page() {
        let path = |from: &str, to: &str| relative(Path::new(from), Path::new(to));
        assert_eq!(path("server.md", "adr/README.md"), "adr/README.md");
        assert_eq!(
            path("adr/0001.md", "project/ARCHITECTURE.md"),
            "../project/ARCHITECTURE.md"
        );
        assert_eq!(
            normalized(Path::new("/r/docs/../x/./y")),
            Path::new("/r/x/y")
        );
    }

    #[test]
    fn the_documents_can_be_staged() {
        let folder = tempfile::tempdir().unwrap();
        stage(&step::root(), folder.path()).unwrap();
        let summary = fs::read_to_string(folder.path().join("SUMMARY.md")).unwrap();
        let links = markdown::links(&summary);
        let decisions = links.iter().filter(|link| link.path.starts_with("adr/"));
        assert!(decisions.count() > 30);
        for link in links {
            assert!(folder.path().join(link.path).is_file(), "{}", link.path);
        }
    }

    #[test]
    fn dead_links_between_pages_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let page = "<a href=\"b.html#there\">1</a><a href=\"b.html#gone\">2</a><img src=\"no.svg\"><a href=\"https://x/\">3</a>";
        fs::write(folder.path().join("a.html"), page).unwrap();
        fs::write(folder.path().join("b.html"), "<h1 id=\"there\">b</h1>").unwrap();
        let dead = dead_links(folder.path()).unwrap();
        let targets: Vec<_> = dead
            .iter()
            .filter_map(|line| line.split(": ").nth(1))
            .collect();
        assert_eq!(targets, ["b.html#gone", "no.svg"]);
    }
}
