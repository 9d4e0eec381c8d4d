//! The Dockerfile makes the image that `cargo xtask image` makes.

use std::collections::BTreeMap;

use kubevitals_dist::root::{self, Documents};
use kubevitals_dist::source::Source;

use crate::{read, root as repository};

/// Returns the instructions of the last stage: the name and the rest of the line.
fn last_stage() -> Vec<(String, String)> {
    let text = read("Dockerfile").replace("\\\n", " ");
    let mut instructions = Vec::new();
    for line in text.lines().map(str::trim) {
        let Some((name, rest)) = line.split_once(' ').filter(|_| !line.starts_with('#')) else {
            continue;
        };
        if name == "FROM" {
            instructions.clear();
        }
        instructions.push((name.to_owned(), rest.trim().to_owned()));
    }
    instructions
}

fn value(name: &str) -> String {
    let stage = last_stage();
    let found: Vec<&str> = stage
        .iter()
        .filter(|(found, _)| found == name)
        .map(|(_, rest)| rest.as_str())
        .collect();
    assert_eq!(found.len(), 1, "{name}: {stage:?}");
    found[0].to_owned()
}

/// Splits `a="1" b="2"`.
fn labels(text: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    let mut rest = text.trim();
    while let Some((name, tail)) = rest.split_once("=\"") {
        let (value, tail) = tail.split_once('"').unwrap();
        labels.insert(name.to_owned(), value.to_owned());
        rest = tail.trim();
    }
    assert_eq!(rest, "");
    labels
}

#[test]
fn it_starts_as_the_built_image_does() {
    let config = root::config(&Source::read().unwrap()).unwrap();
    assert_eq!(value("FROM"), "scratch");
    assert_eq!(value("USER"), config.user);
    assert_eq!(value("WORKDIR"), config.working_dir);
    assert_eq!([value("ENV")], config.env.as_slice());
    let entrypoint: Vec<String> = serde_json::from_str(&value("ENTRYPOINT")).unwrap();
    assert_eq!(entrypoint, config.entrypoint);
}

#[test]
fn it_has_the_same_labels() {
    let mut expected = root::config(&Source::read().unwrap()).unwrap().labels;
    // Known when it is built.
    for (name, argument) in [
        ("revision", "$KUBEVITALS_REVISION"),
        ("created", "$KUBEVITALS_CREATED"),
    ] {
        expected.insert(
            format!("org.opencontainers.image.{name}"),
            argument.to_owned(),
        );
    }
    assert_eq!(labels(&value("LABEL")), expected);
}

#[test]
fn its_files_and_links_are_those_of_the_command() {
    let text = read("Dockerfile").replace("\\\n", " ");
    assert!(text.contains("cargo xtask image --arch \"$TARGETARCH\" -o rootfs --to /build/root"));
    assert_eq!(value("COPY"), "--from=build /build/root/ /");
    let files = root::files(b"program", &Documents::default());
    for (link, target) in root::LINKS {
        assert_eq!(files.target_of(link), Some(target));
    }
}

#[test]
fn it_builds_with_the_pinned_toolchain() {
    let toolchain = read("rust-toolchain.toml");
    let channel = toolchain
        .lines()
        .find_map(|line| line.strip_prefix("channel = \"")?.strip_suffix('"'))
        .unwrap();
    let from = format!("docker.io/library/rust:{channel}-");
    assert!(read("Dockerfile").contains(&from), "{from}");
    assert!(repository().join(".dockerignore").is_file());
}
