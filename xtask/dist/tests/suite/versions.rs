//! The version and the names of a release stand in `Cargo.toml`; what repeats them agrees.

use kubevitals_dist::release::notes;
use kubevitals_dist::source::{Metadata, Source};

use crate::{read, root};

/// Returns the value of a top-level field of a YAML file.
fn field(text: &str, name: &str) -> Option<String> {
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(value.trim().trim_matches(['"', '\'']).to_owned())
}

#[test]
fn all_packages_have_the_version_of_the_workspace() {
    let version = Source::read().unwrap().version;
    for package in Metadata::read(false).unwrap().packages {
        assert_eq!(package.version, version, "{}", package.name);
    }
}

#[test]
fn the_changelog_has_notes_of_the_version() {
    let version = Source::read().unwrap().version;
    let notes = notes(&read("CHANGELOG.md"), &version, true).unwrap();
    assert!(notes.lines().any(|line| line.starts_with("- ")), "{notes}");
}

#[test]
fn the_chart_has_the_version_and_the_image_of_the_workspace() {
    let source = Source::read().unwrap();
    let chart = root().join("deploy/chart/kubevitals");
    if !chart.is_dir() {
        return;
    }
    let manifest = read("deploy/chart/kubevitals/Chart.yaml");
    assert_eq!(field(&manifest, "version"), Some(source.version.clone()));
    assert_eq!(field(&manifest, "appVersion"), Some(source.version));
    let values = read("deploy/chart/kubevitals/values.yaml");
    let image = format!("\n  repository: {}\n", source.image);
    assert!(values.contains(&image), "values.yaml lacks {image}");
}
