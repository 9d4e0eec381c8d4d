//! The parts of Markdown that the documents use: links, headings, fenced blocks.

use std::collections::BTreeMap;

/// A link or a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link<'t> {
    /// The target without its fragment; empty within the same page.
    pub path: &'t str,
    /// The part after `#`.
    pub fragment: Option<&'t str>,
    /// The position of the target in the text.
    pub start: usize,
    /// The end of the target in the text.
    pub end: usize,
}

/// A fenced block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The number of its first line, from 1 on.
    pub line: usize,
    /// The word after the fence.
    pub language: String,
    /// The lines between the fences.
    pub text: String,
}

impl Link<'_> {
    /// Whether the target is not a file of this repository.
    pub fn is_external(&self) -> bool {
        self.path.contains("://") || self.path.starts_with("mailto:")
    }
}

/// Returns the links of a document, outside of fenced blocks.
pub fn links(document: &str) -> Vec<Link<'_>> {
    let mut links = Vec::new();
    let mut offset = 0;
    let mut in_fence = false;
    for line in document.split_inclusive('\n') {
        if line.trim_start().starts_with("```") {
            in_fence = !in_fence;
        } else if !in_fence {
            links_of_line(line, offset, &mut links);
        }
        offset += line.len();
    }
    links
}

fn links_of_line<'t>(line: &'t str, offset: usize, links: &mut Vec<Link<'t>>) {
    let mut rest = line;
    while let Some((_, target)) = rest.split_once("](") {
        let Some((target, after)) = target.split_once(')') else {
            return;
        };
        rest = after;
        let end = offset + line.len() - after.len() - 1;
        let (path, fragment) = match target.split_once('#') {
            Some((path, fragment)) => (path, Some(fragment)),
            None => (target, None),
        };
        links.push(Link {
            path,
            fragment,
            start: end - target.len(),
            end,
        });
    }
}

/// Returns the anchors of the headings of a document, as GitHub and mdBook derive them.
pub fn anchors(document: &str) -> Vec<String> {
    let mut seen = BTreeMap::<String, usize>::new();
    let mut in_fence = false;
    let mut anchors = Vec::new();
    for line in document.lines() {
        if line.trim_start().starts_with("```") {
            in_fence = !in_fence;
        }
        let text = line.trim_start_matches('#');
        let level = line.len() - text.len();
        if in_fence || level == 0 || level > 6 || !text.starts_with(' ') {
            continue;
        }
        let anchor = anchor(text);
        let count = seen.entry(anchor.clone()).or_default();
        anchors.push(if *count == 0 {
            anchor
        } else {
            format!("{anchor}-{count}")
        });
        *count += 1;
    }
    anchors
}

fn anchor(heading: &str) -> String {
    let characters = heading.trim().chars().filter_map(|c| match c {
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
        c if c.is_whitespace() => Some('-'),
        _ => None,
    });
    characters.collect()
}

/// Returns the fenced blocks of a document.
pub fn blocks(document: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (index, line) in document.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), &mut open) {
            (Some(language), None) => {
                open = Some(Block {
                    line: index + 2,
                    language: language.trim().to_owned(),
                    text: String::new(),
                });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_outside_of_blocks() {
        let text = "a [b](c.md#d)\n```sh\n[no](no.md)\n```\n[`x`](y.md) ![z](z.svg)\n";
        let links = links(text);
        let found: Vec<_> = links
            .iter()
            .map(|link| (link.path, link.fragment))
            .collect();
        assert_eq!(
            found,
            [("c.md", Some("d")), ("y.md", None), ("z.svg", None)]
        );
        for link in links {
            let target = text.get(link.start..link.end).unwrap();
            assert!(target.starts_with(link.path), "{target}");
        }
    }

    #[test]
    fn anchors_are_those_of_github() {
        let text = "# Why numbers differ from `free` and `top`\n## A: b, c\n```\n# no\n```\n## A: b, c\n#no\n";
        assert_eq!(
            anchors(text),
            ["why-numbers-differ-from-free-and-top", "a-b-c", "a-b-c-1"]
        );
    }

    #[test]
    fn blocks_have_their_language_and_line() {
        let found = blocks("text\n```sh\na\nb\n```\n```\nc\n```\n");
        let found: Vec<_> = found
            .iter()
            .map(|block| (block.line, block.language.as_str(), block.text.as_str()))
            .collect();
        assert_eq!(found, [(3, "sh", "a\nb\n"), (7, "", "c\n")]);
    }
}
