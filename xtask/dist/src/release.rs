//! The files of a release: archives, images, chart, checksums, notes.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use xtask::step::{self, Steps, cargo, command_line};

use crate::archive::{Files, gzip, sha256};
use crate::image::{self, Compression, Format};
use crate::program::{Build, DIST, executable, messages};
use crate::root::{Documents, Root};
use crate::source::{PROGRAM, Source, output};
use crate::target::Target;

/// What to build, and where to put it.
#[derive(Debug, Clone)]
pub struct Release {
    pub targets: Vec<Target>,
    /// Leaves out targets that this machine cannot build; else they are an error.
    pub skip_missing: bool,
    /// Takes the notes of what is unreleased: for files that are not published.
    pub snapshot: bool,
    /// The tag of the release, which must be that of the version.
    pub tag: Option<String>,
    pub folder: PathBuf,
}

/// Documents of the source tree that are in every archive.
const DOCUMENTS: [&str; 2] = ["README.md", "CHANGELOG.md"];

/// The chart, where there is one.
const CHART: &str = "deploy/chart/kubevitals";

/// The checksums of all other files, in the format of `sha256sum`.
const CHECKSUMS: &str = "SHA256SUMS";

impl Release {
    /// Makes the release and returns the paths of its files.
    pub fn make(&self, steps: &mut Steps) -> Result<Vec<PathBuf>> {
        let source = Source::read()?;
        if let Some(tag) = &self.tag
            && *tag != format!("v{}", source.version)
        {
            bail!(
                "the tag {tag} is not that of the version {}: set `version` in Cargo.toml",
                source.version
            );
        }
        let changelog = read(&step::root().join("CHANGELOG.md"))?;
        let notes = notes(&changelog, &source.version, self.snapshot)?;
        let targets = self.available()?;
        let mut out = Output::new(&self.folder)?;

        let extras = steps.step("man pages and completions", || extras(&self.folder))?;
        let mut images = Vec::new();
        for target in targets {
            let root = steps.step(target.triple(), || {
                let build = Build {
                    target,
                    profile: DIST,
                };
                let program = build.run()?;
                let root = Root::new(&source, &program)?;
                let name = format!("{PROGRAM}-{}-{}", source.version, target.triple());
                let files = archive_files(&name, &program.binary, &root.documents, &extras)?;
                out.write(&format!("{name}.tar.gz"), &gzip(&files.tar()?)?)?;
                out.write(&format!("{name}.cdx.json"), root.documents.sbom.as_bytes())?;
                Ok(root)
            })?;
            if Target::of_image(target.architecture()) == target {
                images.push(root.image(&source, Compression::Gzip)?);
            }
        }
        if !images.is_empty() {
            let name = format!("{}:{}", source.image, source.version);
            let archive = image::archive(&name, &images, Format::Oci)?;
            out.write(
                &format!("{PROGRAM}-{}-image.oci.tar", source.version),
                &archive.bytes,
            )?;
            println!("image {name} {}", archive.digest);
        }
        let chart = step::root().join(CHART);
        if chart.is_dir() {
            let (name, bytes) = chart_package(&chart, &source.version)?;
            out.write(&name, &bytes)?;
        }
        std::fs::remove_dir_all(&extras)?;
        out.write("RELEASE-NOTES.md", notes.as_bytes())?;
        out.finish()
    }

    fn available(&self) -> Result<Vec<Target>> {
        let mut available = Vec::new();
        let mut missing = Vec::new();
        for target in &self.targets {
            match target.missing()? {
                None => available.push(*target),
                Some(reason) => missing.push(format!("{}: {reason}", target.triple())),
            }
        }
        if !missing.is_empty() && !self.skip_missing {
            bail!(
                "this machine cannot build for every target (--skip-missing leaves them out):\n{}",
                missing.join("\n")
            );
        }
        for line in missing {
            println!("left out: {line}");
        }
        Ok(available)
    }
}

/// Files that are written one by one, and their checksums.
struct Output<'a> {
    folder: &'a Path,
    checksums: Vec<String>,
    written: Vec<PathBuf>,
}

impl<'a> Output<'a> {
    fn new(folder: &'a Path) -> Result<Self> {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(Self {
            folder,
            checksums: Vec::new(),
            written: Vec::new(),
        })
    }

    fn write(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.folder.join(name);
        std::fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        self.checksums.push(format!("{}  {name}\n", sha256(bytes)));
        self.written.push(path);
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<PathBuf>> {
        self.checksums
            .sort_by(|one, two| one.get(64..).cmp(&two.get(64..)));
        let text = self.checksums.concat();
        self.write(CHECKSUMS, text.as_bytes())?;
        Ok(self.written)
    }
}

/// Returns the section of a version in the changelog, without its heading.
pub fn notes(changelog: &str, version: &str, snapshot: bool) -> Result<String> {
    let section = |wanted: &dyn Fn(&str) -> bool| {
        let mut lines = changelog.lines().skip_while(|line| {
            line.strip_prefix("## ")
                .is_none_or(|heading| !wanted(heading))
        });
        lines.next()?;
        let lines: Vec<&str> = lines.take_while(|line| !line.starts_with("## ")).collect();
        Some(format!("{}\n", lines.join("\n").trim()))
    };
    // A heading is `## 1.2.3` or `## 1.2.3 - 2026-01-31`.
    let released = section(&|heading| heading.split_whitespace().next() == Some(version));
    let found = released.or_else(|| {
        let unreleased = section(&|heading| heading == "Unreleased");
        unreleased.filter(|_| snapshot)
    });
    found.with_context(|| {
        format!(
            "CHANGELOG.md has no section `## {version}`: rename `## Unreleased` to it, or write \
             --snapshot for files that are not published"
        )
    })
}

/// Lets the program write its man pages and completions; it does so only in a build with all
/// features, which the tests make too.
fn extras(folder: &Path) -> Result<PathBuf> {
    let mut build = cargo();
    build.args(["build", "--locked", "--workspace", "--all-features"]);
    build.args(["--bin", PROGRAM]);
    let messages = messages(&mut build)?;
    let program = executable(PROGRAM, &messages)
        .with_context(|| format!("{} built no {PROGRAM}", command_line(&build)))?;
    let extras = folder.join("extras");
    if extras.exists() {
        std::fs::remove_dir_all(&extras)?;
    }
    let mut write = std::process::Command::new(program);
    output(write.arg("dist-files").arg(&extras))?;
    Ok(extras)
}

/// The files of an archive, in a folder of the archive's name.
fn archive_files(name: &str, binary: &[u8], documents: &Documents, extras: &Path) -> Result<Files> {
    let mut files = Files::default();
    files.folder(name, 0o755);
    files.file(&format!("{name}/{PROGRAM}"), 0o755, binary);
    files.link(&format!("{name}/kubectl-vitals"), PROGRAM);
    for document in DOCUMENTS {
        let text = read(&step::root().join(document))?;
        files.file(&format!("{name}/{document}"), 0o644, text);
    }
    for (document, text) in documents.named() {
        files.file(&format!("{name}/{document}"), 0o644, text);
    }
    add_folder(&mut files, name, extras)?;
    Ok(files)
}

/// Packs the chart as `helm package` does: all files in a folder of the chart's name.
fn chart_package(chart: &Path, version: &str) -> Result<(String, Vec<u8>)> {
    let manifest = read(&chart.join("Chart.yaml"))?;
    let field = |name: &str| {
        let mut lines = manifest.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(value.trim().trim_matches(['"', '\'']).to_owned())
    };
    let found = field("version").context("Chart.yaml has no version")?;
    if found != version {
        bail!("Chart.yaml has version {found}, the workspace has {version}");
    }
    let name = field("name").context("Chart.yaml has no name")?;
    let mut files = Files::default();
    add_folder(&mut files, &name, chart)?;
    Ok((format!("{name}-{version}.tgz"), gzip(&files.tar()?)?))
}

/// Adds the files in a folder, sorted, under another name.
fn add_folder(files: &mut Files, name: &str, folder: &Path) -> Result<()> {
    let context = || format!("cannot read {}", folder.display());
    let entries = std::fs::read_dir(folder).with_context(context)?;
    let mut paths = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<Vec<_>>>()
        .with_context(context)?;
    paths.sort();
    for path in paths {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let inside = format!("{name}/{file}");
        if path.is_dir() {
            add_folder(files, &inside, &path)?;
        } else {
            let bytes =
                std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            files.file(&inside, 0o644, bytes);
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGELOG: &str = "# Changelog\n\n## Unreleased\n\n- new\n\n## 0.2.0 - 2026-01-31\n\n- two\n\n### Server\n\n- more\n\n## 0.1.0\n\n- one\n";

    #[test]
    fn the_notes_are_the_section_of_the_version() {
        let notes = |version| notes(CHANGELOG, version, false);
        assert_eq!(notes("0.1.0").unwrap(), "- one\n");
        assert_eq!(notes("0.2.0").unwrap(), "- two\n\n### Server\n\n- more\n");
    }

    #[test]
    fn a_release_without_notes_is_refused_and_a_snapshot_is_not() {
        let error = notes(CHANGELOG, "0.3.0", false).unwrap_err().to_string();
        assert!(error.contains("no section `## 0.3.0`"), "{error}");
        assert_eq!(notes(CHANGELOG, "0.3.0", true).unwrap(), "- new\n");
        assert!(notes("# Changelog\n", "0.3.0", true).is_err());
    }

    #[test]
    fn a_chart_package_has_the_layout_of_helm_and_the_same_bytes_twice() {
        let folder = tempfile::tempdir().unwrap();
        let chart = folder.path().join("chart");
        std::fs::create_dir_all(chart.join("templates")).unwrap();
        std::fs::write(chart.join("Chart.yaml"), "name: x\nversion: 1.2.3\n").unwrap();
        std::fs::write(chart.join("templates/a.yaml"), "a: 1\n").unwrap();
        let (name, bytes) = chart_package(&chart, "1.2.3").unwrap();
        assert_eq!(name, "x-1.2.3.tgz");
        assert_eq!(chart_package(&chart, "1.2.3").unwrap().1, bytes);
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(bytes.as_slice()));
        let paths: Vec<PathBuf> = tar
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().into_owned())
            .collect();
        assert_eq!(
            paths,
            [Path::new("x/Chart.yaml"), Path::new("x/templates/a.yaml")]
        );
        let error = chart_package(&chart, "1.2.4").unwrap_err().to_string();
        assert!(
            error.contains("1.2.3") && error.contains("1.2.4"),
            "{error}"
        );
    }

    #[test]
    fn checksums_are_in_the_format_of_sha256sum() {
        let folder = tempfile::tempdir().unwrap();
        let mut out = Output::new(folder.path()).unwrap();
        out.write("b", b"two").unwrap();
        out.write("a", b"one").unwrap();
        out.finish().unwrap();
        let checked = std::process::Command::new("sha256sum")
            .args(["--check", "--strict", "--quiet", CHECKSUMS])
            .current_dir(folder.path())
            .status();
        assert!(checked.unwrap().success());
        let text = read(&folder.path().join(CHECKSUMS)).unwrap();
        let names: Vec<&str> = text.lines().filter_map(|line| line.get(66..)).collect();
        assert_eq!(names, ["a", "b"]);
    }
}
