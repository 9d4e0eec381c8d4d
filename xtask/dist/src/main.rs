//! `cargo xtask image` and `cargo xtask dist`: what is shipped.
#![expect(
    clippy::print_stdout,
    reason = "the output of a command-line tool is its product"
)]

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, ValueEnum};
use kubevitals_dist::image::{self, Architecture, Compression, Format};
use kubevitals_dist::program::{Build, DIST};
use kubevitals_dist::release::Release;
use kubevitals_dist::root::Root;
use kubevitals_dist::source::{Metadata, PROGRAM, Source};
use kubevitals_dist::target::Target;
use xtask::step::Steps;

/// What is shipped
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Tool {
    /// Build the container image, without a container engine
    #[command(after_help = IMAGE_EXAMPLES)]
    Image(ImageFlags),
    /// Build the files of a release: archives, image, chart, checksums
    #[command(after_help = DIST_EXAMPLES)]
    Dist(DistFlags),
}

/// The image to build
#[derive(Debug, Args)]
struct ImageFlags {
    /// Architecture (may be repeated: an OCI archive of several); default: this machine's
    #[arg(long, value_name = "NAME")]
    arch: Vec<Architecture>,
    /// Target of the compiler instead of the architecture's, which links glibc
    #[arg(long, value_name = "TARGET", conflicts_with = "arch")]
    target: Option<Target>,
    /// Format to write
    #[arg(short, long, default_value = "oci")]
    output: Output,
    /// Name and tag; default: the registry's name and the version
    #[arg(long, value_name = "NAME:TAG")]
    name: Option<String>,
    /// Profile of Cargo.toml; only `dist` is shipped
    #[arg(long, default_value = DIST)]
    profile: String,
    /// Folder to write to; default: `image` in cargo's target folder
    #[arg(long, value_name = "FOLDER")]
    to: Option<PathBuf>,
}

/// A format that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// An OCI image layout in a tar archive
    Oci,
    /// An archive for `docker load`
    Docker,
    /// The files of the image in a folder: for a Dockerfile
    Rootfs,
}

/// The release to make
#[derive(Debug, Args)]
struct DistFlags {
    /// Target (may be repeated); default: all
    #[arg(long, value_name = "TARGET")]
    target: Vec<Target>,
    /// Leave out targets that this machine cannot build, which is an error otherwise
    #[arg(long)]
    skip_missing: bool,
    /// Take the notes from the section Unreleased: for files that are not published
    #[arg(long)]
    snapshot: bool,
    /// The tag of the release: an error if it is not that of the version
    #[arg(long)]
    tag: Option<String>,
    /// Folder to write to; default: `release` in cargo's target folder
    #[arg(long, value_name = "FOLDER")]
    to: Option<PathBuf>,
}

const IMAGE_EXAMPLES: &str = "\
Examples:
  cargo xtask image                             for this machine, as an OCI archive
  cargo xtask image --arch amd64 --arch arm64   both in one archive
  cargo xtask image -o docker                   for `docker load`
  ctr --namespace k8s.io images import target/image/kubevitals-0.1.0-linux-amd64.oci.tar";

const DIST_EXAMPLES: &str = "\
Examples:
  cargo xtask dist --snapshot --skip-missing    what this machine can build
  cargo xtask dist --tag v0.1.0                 a release";

fn main() -> ExitCode {
    let result = match Tool::parse() {
        Tool::Image(flags) => make_image(&flags),
        Tool::Dist(flags) => make_release(flags),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn make_image(flags: &ImageFlags) -> Result<()> {
    let targets = match (flags.target, flags.arch.as_slice()) {
        (Some(target), _) => vec![target],
        (None, []) => vec![Target::of_image(Architecture::of_host()?)],
        (None, chosen) => chosen.iter().copied().map(Target::of_image).collect(),
    };
    if targets.len() > 1 && flags.output != Output::Oci {
        bail!("only -o oci holds several architectures");
    }
    let source = Source::read()?;
    let mut roots = Vec::new();
    for target in &targets {
        let build = Build {
            target: *target,
            profile: &flags.profile,
        };
        let program = build.run()?;
        let size = megabytes(program.binary.len());
        println!("{}: {size}, static", target.triple());
        roots.push(Root::new(&source, &program)?);
    }
    let folder = folder(flags.to.as_ref(), "image")?;
    if flags.output == Output::Rootfs {
        let [root] = roots.as_slice() else {
            bail!("only -o oci holds several architectures");
        };
        root.files.write_to(&folder)?;
        println!("{}", folder.display());
        return Ok(());
    }
    let architectures: Vec<&str> = targets
        .iter()
        .map(|one| one.architecture().name())
        .collect();
    let stem = format!(
        "{PROGRAM}-{}-linux-{}",
        source.version,
        architectures.join("-")
    );
    let (format, extension) = match flags.output {
        Output::Docker => (Format::Docker, "docker.tar"),
        Output::Oci | Output::Rootfs => (Format::Oci, "oci.tar"),
    };
    let images = roots
        .iter()
        .map(|root| root.image(&source, Compression::Gzip))
        .collect::<Result<Vec<_>>>()?;
    let default = format!("{}:{}", source.image, source.version);
    let name = flags.name.as_ref().unwrap_or(&default);
    let archive = image::archive(name, &images, format)?;
    write(&folder, &format!("{stem}.{extension}"), &archive.bytes)?;
    for root in &roots {
        let file = format!(
            "{PROGRAM}-{}-linux-{}.cdx.json",
            source.version,
            root.architecture.name()
        );
        write(&folder, &file, root.documents.sbom.as_bytes())?;
    }
    println!("{name} {}", archive.digest);
    for (architecture, bytes) in architectures.iter().zip(archive.download_bytes) {
        println!("{architecture}: {} to download", megabytes(bytes));
    }
    Ok(())
}

fn make_release(flags: DistFlags) -> Result<()> {
    let release = Release {
        targets: if flags.target.is_empty() {
            Target::ALL.to_vec()
        } else {
            flags.target
        },
        skip_missing: flags.skip_missing,
        snapshot: flags.snapshot,
        tag: flags.tag,
        folder: folder(flags.to.as_ref(), "release")?,
    };
    Steps::report(|steps| {
        let written = release.make(steps)?;
        let lines = written.iter().map(|path| path.display().to_string());
        Ok(lines.collect::<Vec<_>>().join("\n"))
    })
}

fn megabytes(bytes: usize) -> String {
    format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000)
}

fn folder(given: Option<&PathBuf>, name: &str) -> Result<PathBuf> {
    match given {
        Some(folder) => Ok(folder.clone()),
        None => Ok(Metadata::read(false)?.target_directory.join(name)),
    }
}

fn write(folder: &std::path::Path, name: &str, bytes: &[u8]) -> Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    let path = folder.join(name);
    std::fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    println!("{}", path.display());
    Ok(())
}
