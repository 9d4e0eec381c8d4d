//! What a build takes from the source tree: version, revision, time, names.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use xtask::step::{self, cargo, command_line};

/// The source tree that is built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The version of the workspace.
    pub version: String,
    /// The commit, with `-dirty` if files differ from it. Unknown outside of a clone.
    pub revision: Option<String>,
    /// Seconds since 1970: `SOURCE_DATE_EPOCH`, or the time of the commit.
    pub time: i64,
    /// The home page of the source.
    pub repository: String,
    /// The image's name in a registry, without a tag.
    pub image: String,
    pub description: String,
    pub license: String,
}

/// The output of `cargo metadata`, as far as it is used.
#[derive(Debug, Clone, Deserialize)]
pub struct Metadata {
    pub packages: Vec<Package>,
    pub resolve: Option<Resolve>,
    #[serde(rename = "metadata")]
    own: Option<OwnMetadata>,
    pub target_directory: std::path::PathBuf,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Package {
    pub id: String,
    pub name: String,
    pub version: String,
    pub license: Option<String>,
    pub description: Option<String>,
    pub repository: Option<String>,
    /// None for a package of the workspace.
    pub source: Option<String>,
    pub manifest_path: std::path::PathBuf,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Resolve {
    pub nodes: Vec<Node>,
}

/// A package and the packages that it depends on.
#[derive(Debug, Clone, Deserialize)]
pub struct Node {
    pub id: String,
    pub dependencies: Vec<String>,
}

/// `[workspace.metadata]`, which no tool but ours reads.
#[derive(Debug, Clone, Deserialize)]
struct OwnMetadata {
    image: ImageMetadata,
}

#[derive(Debug, Clone, Deserialize)]
struct ImageMetadata {
    repository: String,
}

/// The package of the program.
pub const PROGRAM: &str = "kubevitals";

/// Names the time of a build in seconds since 1970, as reproducible builds agree on.
const EPOCH_VARIABLE: &str = "SOURCE_DATE_EPOCH";

/// Names the revision where the source is not a clone, as in a Dockerfile.
const REVISION_VARIABLE: &str = "KUBEVITALS_REVISION";

impl Metadata {
    /// Reads the metadata of the workspace; of all packages, or of its own only.
    pub fn read(with_dependencies: bool) -> Result<Self> {
        let mut metadata = cargo();
        // With all features: what is shipped is not all on by default.
        metadata.args([
            "metadata",
            "--locked",
            "--all-features",
            "--format-version=1",
        ]);
        if !with_dependencies {
            metadata.arg("--no-deps");
        }
        Ok(serde_json::from_str(&output(&mut metadata)?)?)
    }

    /// Packages by their ids.
    pub fn by_id(&self) -> BTreeMap<&str, &Package> {
        let packages = self.packages.iter();
        packages
            .map(|package| (package.id.as_str(), package))
            .collect()
    }

    fn program(&self) -> Result<&Package> {
        let mut packages = self.packages.iter();
        packages
            .find(|package| package.name == PROGRAM && package.source.is_none())
            .with_context(|| format!("the workspace has no package {PROGRAM}"))
    }
}

impl Source {
    /// Reads the source tree that this tool belongs to.
    pub fn read() -> Result<Self> {
        Self::from_metadata(&Metadata::read(false)?)
    }

    fn from_metadata(metadata: &Metadata) -> Result<Self> {
        let program = metadata.program()?;
        let image = metadata.own.as_ref();
        let image = image.context("Cargo.toml lacks [workspace.metadata.image] repository")?;
        let text = |value: &Option<String>, name: &str| {
            let value = value.clone();
            value.with_context(|| format!("the package {PROGRAM} has no {name}"))
        };
        Ok(Self {
            version: program.version.clone(),
            revision: revision(),
            time: time()?,
            repository: text(&program.repository, "repository")?,
            image: image.image.repository.clone(),
            description: text(&program.description, "description")?,
            license: text(&program.license, "license")?,
        })
    }

    /// The time as RFC 3339.
    pub fn created(&self) -> Result<String> {
        let time = jiff::Timestamp::from_second(self.time);
        Ok(time
            .with_context(|| format!("{EPOCH_VARIABLE}={} is not a time", self.time))?
            .to_string())
    }
}

fn revision() -> Option<String> {
    if let Some(given) = std::env::var(REVISION_VARIABLE)
        .ok()
        .filter(|value| !value.is_empty())
    {
        return Some(given);
    }
    let head = git(&["rev-parse", "HEAD"])?;
    let changes = git(&["status", "--porcelain"])?;
    Some(if changes.is_empty() {
        head
    } else {
        format!("{head}-dirty")
    })
}

fn time() -> Result<i64> {
    if let Ok(given) = std::env::var(EPOCH_VARIABLE)
        && !given.is_empty()
    {
        return given
            .parse()
            .with_context(|| format!("{EPOCH_VARIABLE}={given} is not a number of seconds"));
    }
    let time = git(&["log", "-1", "--format=%ct"]).and_then(|text| text.parse().ok());
    time.with_context(|| format!("the time of the build is unknown: set {EPOCH_VARIABLE}"))
}

/// Returns what git prints, or nothing outside of a clone.
fn git(arguments: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    git.current_dir(step::root()).args(arguments);
    git.stderr(Stdio::null());
    output(&mut git).ok().map(|text| text.trim().to_owned())
}

/// Runs a program and returns what it prints.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", command_line(command)))?;
    if !output.status.success() {
        bail!(
            "{} failed ({}): {}",
            command_line(command),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates_in_utc() {
        let source = Source {
            version: "1.2.3".to_owned(),
            revision: None,
            time: 1_700_000_000,
            repository: String::new(),
            image: String::new(),
            description: String::new(),
            license: String::new(),
        };
        assert_eq!(source.created().unwrap(), "2023-11-14T22:13:20Z");
    }
}
