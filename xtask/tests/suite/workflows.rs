//! The workflow files of GitHub: pinned, and with no more rights than they use.

use crate::{has_extension, read, tracked};

fn workflows() -> Vec<(String, String)> {
    let files = tracked().into_iter();
    let found: Vec<(String, String)> = files
        .filter(|file| file.starts_with(".github/workflows/") && has_extension(file, "yml"))
        .map(|file| (file.clone(), read(&file)))
        .collect();
    assert!(!found.is_empty(), "there are no workflows");
    found
}

#[test]
fn actions_are_pinned_to_a_commit_with_its_version_beside_it() {
    for (file, text) in workflows() {
        for line in text.lines() {
            let line = line.trim().trim_start_matches("- ");
            let Some(action) = line.strip_prefix("uses: ") else {
                continue;
            };
            if action.starts_with("./") {
                continue;
            }
            let pinned = action.split_once('@').and_then(|(_, version)| {
                let (commit, tag) = version.split_once(" # v")?;
                let is_commit = commit.len() == 40 && commit.bytes().all(|b| b.is_ascii_hexdigit());
                (is_commit && !tag.is_empty()).then_some(())
            });
            assert!(pinned.is_some(), "{file}: {action}");
        }
    }
}

#[test]
fn a_job_has_only_the_rights_that_it_names() {
    for (file, text) in workflows() {
        assert!(text.contains("\npermissions: {}\n"), "{file}");
        assert!(!text.contains("write-all"), "{file}");
        for line in text.lines().filter(|line| line.contains(": write")) {
            assert!(line.contains(" # "), "{file}: say what this is for: {line}");
        }
    }
}

#[test]
fn they_build_with_the_pinned_toolchain_and_publish_under_the_name_of_the_workspace() {
    let value = |text: &str, name: &str| {
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_suffix('"'));
        value.unwrap().to_owned()
    };
    let channel = value(&read("rust-toolchain.toml"), "channel = \"");
    let manifest = read("Cargo.toml");
    let (_, image) = manifest.split_once("[workspace.metadata.image]\n").unwrap();
    let image = value(image, "repository = \"");
    for (file, text) in workflows() {
        for line in text.lines().map(str::trim) {
            if let Some(container) = line.strip_prefix("container: ") {
                let expected = format!("docker.io/library/rust:{channel}-bookworm");
                assert_eq!(container, expected, "{file}");
            }
            if let Some(name) = line.strip_prefix("IMAGE: ") {
                assert_eq!(name, image, "{file}");
            }
        }
    }
}

#[test]
fn a_release_builds_what_was_tested() {
    let release = read(".github/workflows/release.yml");
    assert!(release.contains("uses: ./.github/workflows/ci.yml"));
    assert!(release.contains("needs: [ci, build]"));
    let tests = read(".github/workflows/ci.yml");
    for command in ["test", "deny", "e2e", "image"] {
        assert!(
            tests.contains(&format!("cargo xtask {command}")),
            "{command}"
        );
    }
}
