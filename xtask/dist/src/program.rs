//! The program as it is shipped: one static binary, without paths of the machine that built it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use xtask::step::{self, cargo, command_line};

use crate::source::{Metadata, PROGRAM, output};
use crate::target::{Target, rustc, rustc_field};

/// How the program is compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Build<'a> {
    pub target: Target,
    /// A profile of `Cargo.toml`; what is shipped is built with [`DIST`].
    pub profile: &'a str,
}

/// A program that was built.
#[derive(Debug, Clone)]
pub struct Program {
    pub target: Target,
    pub binary: Vec<u8>,
    /// The ids of the packages whose code is linked.
    pub packages: BTreeSet<String>,
    pub toolchain: Toolchain,
}

/// The parts of a static binary that no package of cargo brings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toolchain {
    pub rust: String,
    /// Name and version.
    pub c_library: (String, String),
}

/// The profile of what is shipped.
pub const DIST: &str = "dist";

/// A folder of this machine that compilers would write into the binary.
#[derive(Debug, Clone)]
struct Remapped {
    from: PathBuf,
    /// The name that stands for it.
    to: String,
    /// Folders in it with source files. The folder itself may have a name as short as `/src`, which
    /// is found in any binary.
    inside: &'static [&'static str],
}

/// A line of cargo's messages.
#[derive(Debug, Deserialize)]
struct Message {
    #[serde(default)]
    package_id: String,
    target: Option<MessageTarget>,
    #[serde(default)]
    filenames: Vec<PathBuf>,
    executable: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct MessageTarget {
    name: String,
}

impl Build<'_> {
    /// Compiles the program.
    pub fn run(&self) -> Result<Program> {
        if let Some(missing) = self.target.missing()? {
            bail!("cannot build for {}: {missing}", self.target.triple());
        }
        let target_folder = Metadata::read(false)?.target_directory;
        let remapped = remapped_paths(&target_folder)?;
        let mut build = self.command(&remapped);
        let messages = messages(&mut build)?;
        let path = executable(PROGRAM, &messages)
            .with_context(|| format!("{} built no {PROGRAM}", command_line(&build)))?;
        let binary =
            std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        if let Some(loader) = loader(&binary) {
            bail!("{} is not static: it names {loader}", path.display());
        }
        for folder in remapped.iter().flat_map(Remapped::inside) {
            if contains(&binary, folder.as_os_str().as_encoded_bytes()) {
                bail!(
                    "{} contains a path of this machine: {}",
                    path.display(),
                    folder.display()
                );
            }
        }
        Ok(Program {
            target: self.target,
            binary,
            packages: linked_packages(self.target, &messages),
            toolchain: self.toolchain()?,
        })
    }

    fn command(&self, remapped: &[Remapped]) -> Command {
        let triple = self.target.triple();
        let variable = triple.replace('-', "_");
        let mut build = cargo();
        build
            .args(["build", "--locked", "--no-default-features"])
            .arg(format!("--package={PROGRAM}"))
            .arg(format!("--bin={PROGRAM}"))
            .arg(format!("--features={}", step::SHIPPED_FEATURES.join(",")))
            .arg(format!("--profile={}", self.profile))
            .arg(format!("--target={triple}"))
            // What is shipped has its own features, however this machine's cargo is configured.
            .env_remove("CARGO_RESOLVER_FEATURE_UNIFICATION")
            .env("CARGO_ENCODED_RUSTFLAGS", rust_flags(self.target, remapped))
            .env(format!("CFLAGS_{variable}"), c_flags(remapped));
        if !self.target.runs_here() {
            let linker = format!("CARGO_TARGET_{}_LINKER", variable.to_uppercase());
            if std::env::var_os(&linker).is_none() {
                build.env(linker, self.target.c_compiler());
            }
        }
        if self.target.architecture() == crate::image::Architecture::Arm64 {
            // Kernels for arm64 have pages of 4, 16 or 64 KiB: an allocator that is built for the
            // largest works on all of them.
            build.env("JEMALLOC_SYS_WITH_LG_PAGE", "16");
        }
        build
    }

    fn toolchain(&self) -> Result<Toolchain> {
        let c_library = self.target.c_library();
        let version = match c_library {
            "glibc" => glibc_version(self.target)?,
            // musl has no macro of its version; Rust brings its own copy.
            _ => format!("of Rust {}", rustc_field("release")?),
        };
        Ok(Toolchain {
            rust: rustc_field("release")?,
            c_library: (c_library.to_owned(), version),
        })
    }
}

/// Runs a build and returns cargo's messages, a JSON object on each line.
pub fn messages(build: &mut Command) -> Result<String> {
    build.arg("--message-format=json-render-diagnostics");
    let output = build
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {}", command_line(build)))?;
    if !output.status.success() {
        bail!("{} failed ({})", command_line(build), output.status);
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Finds the path of an executable in cargo's messages.
pub fn executable(name: &str, messages: &str) -> Option<PathBuf> {
    parsed(messages).find_map(|message| {
        let is_wanted = message.target.is_some_and(|target| target.name == name);
        message.executable.filter(|_| is_wanted)
    })
}

/// The packages of which a library was compiled for the target. Build scripts and macros are
/// compiled for this machine, into another folder.
fn linked_packages(target: Target, messages: &str) -> BTreeSet<String> {
    let is_linked = |file: &PathBuf| {
        let is_library = file
            .extension()
            .is_some_and(|extension| extension == "rlib");
        is_library
            && file
                .components()
                .any(|part| part.as_os_str() == target.triple())
    };
    let linked = parsed(messages)
        .filter(|message| message.executable.is_some() || message.filenames.iter().any(is_linked));
    linked.map(|message| message.package_id).collect()
}

fn parsed(messages: &str) -> impl Iterator<Item = Message> + '_ {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
}

impl Remapped {
    fn inside(&self) -> impl Iterator<Item = PathBuf> {
        self.inside.iter().map(|folder| self.from.join(folder))
    }
}

/// The folders that are renamed. Of two that match the later one counts.
fn remapped_paths(target_folder: &Path) -> Result<Vec<Remapped>> {
    let sysroot = output(rustc().args(["--print", "sysroot"]))?;
    let home = match std::env::var_os("CARGO_HOME") {
        Some(home) => PathBuf::from(home),
        None => std::env::home_dir()
            .context("neither CARGO_HOME nor HOME is set")?
            .join(".cargo"),
    };
    Ok(vec![
        Remapped {
            from: home,
            to: "/cargo".to_owned(),
            inside: &["registry/src"],
        },
        Remapped {
            from: step::root(),
            to: "/kubevitals".to_owned(),
            inside: &["bin/kubevitals", "crates"],
        },
        Remapped {
            from: target_folder.to_owned(),
            to: "/target".to_owned(),
            inside: &["x86_64-unknown-linux-", "aarch64-unknown-linux-"],
        },
        // As where the source of the standard library is not installed.
        Remapped {
            from: Path::new(sysroot.trim()).join("lib/rustlib/src/rust"),
            to: format!("/rustc/{}", rustc_field("commit-hash")?),
            inside: &["library"],
        },
    ])
}

/// Flags are separated by a character that no path has.
fn rust_flags(target: Target, remapped: &[Remapped]) -> OsString {
    let mut flags = OsString::from("-Ctarget-feature=+crt-static");
    if target.c_library() == "glibc" {
        // A bit for each pointer that is relocated at the start, instead of 24 bytes. glibc reads
        // that since 2.36.
        flags.push("\x1f-Clink-arg=-Wl,-z,pack-relative-relocs");
    }
    for path in remapped {
        flags.push("\x1f--remap-path-prefix=");
        flags.push(&path.from);
        flags.push(format!("={}", path.to));
    }
    flags
}

fn c_flags(remapped: &[Remapped]) -> OsString {
    let mut flags = std::env::var_os("CFLAGS").unwrap_or_default();
    for path in remapped {
        flags.push(" -ffile-prefix-map=");
        flags.push(&path.from);
        flags.push(format!("={}", path.to));
    }
    flags
}

fn glibc_version(target: Target) -> Result<String> {
    let mut compiler = Command::new(target.c_compiler());
    compiler.args([
        "-E",
        "-dM",
        "-include",
        "features.h",
        "-x",
        "c",
        "/dev/null",
    ]);
    let macros = output(&mut compiler)?;
    glibc_of_macros(&macros).with_context(|| format!("{} has no glibc", target.c_compiler()))
}

fn glibc_of_macros(macros: &str) -> Option<String> {
    let value = |name: &str| {
        let mut lines = macros.lines();
        lines.find_map(|line| {
            line.strip_prefix("#define ")?
                .strip_prefix(name)?
                .strip_prefix(' ')
        })
    };
    Some(format!(
        "{}.{}",
        value("__GLIBC__")?,
        value("__GLIBC_MINOR__")?
    ))
}

/// Returns the dynamic loader that an ELF file names: the segment of type `PT_INTERP`.
fn loader(binary: &[u8]) -> Option<String> {
    let number = |offset: usize, length: usize| {
        let bytes = binary.get(offset..offset.checked_add(length)?)?;
        let little_endian = bytes.iter().rev();
        let value = little_endian.fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte));
        usize::try_from(value).ok()
    };
    // The header of a 64-bit file: offset, size and number of the program headers.
    let (start, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    (0..count).find_map(|index| {
        let header = start.checked_add(index.checked_mul(size)?)?;
        if number(header, 4)? != 3 {
            return None;
        }
        let (offset, length) = (number(header + 8, 8)?, number(header + 32, 8)?);
        let name = binary.get(offset..offset.checked_add(length)?)?;
        Some(
            String::from_utf8_lossy(name)
                .trim_end_matches('\0')
                .to_owned(),
        )
    })
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    !wanted.is_empty() && bytes.windows(wanted.len()).any(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_the_target_are_linked_and_build_scripts_are_not() {
        let messages = [
            r#"{"reason":"compiler-artifact","package_id":"serde 1","target":{"name":"serde","kind":["lib"]},"filenames":["/t/x86_64-unknown-linux-gnu/dist/deps/libserde-1.rlib","/t/x86_64-unknown-linux-gnu/dist/deps/libserde-1.rmeta"],"executable":null}"#,
            r#"{"reason":"compiler-artifact","package_id":"cc 1","target":{"name":"cc","kind":["lib"]},"filenames":["/t/dist/deps/libcc-1.rlib"],"executable":null}"#,
            r#"{"reason":"compiler-artifact","package_id":"serde_derive 1","target":{"name":"serde_derive","kind":["proc-macro"]},"filenames":["/t/dist/deps/libserde_derive-1.so"],"executable":null}"#,
            r#"{"reason":"build-script-executed","package_id":"serde 1","linked_libs":[]}"#,
            r#"{"reason":"compiler-artifact","package_id":"kubevitals 1","target":{"name":"kubevitals","kind":["bin"]},"filenames":["/t/x86_64-unknown-linux-gnu/dist/kubevitals"],"executable":"/t/x86_64-unknown-linux-gnu/dist/kubevitals"}"#,
            r#"{"reason":"build-finished","success":true}"#,
        ]
        .join("\n");
        assert_eq!(
            linked_packages(Target::Amd64Gnu, &messages),
            ["kubevitals 1".to_owned(), "serde 1".to_owned()].into()
        );
        assert_eq!(
            executable("kubevitals", &messages),
            Some(PathBuf::from("/t/x86_64-unknown-linux-gnu/dist/kubevitals"))
        );
        assert_eq!(executable("serde", &messages), None);
    }

    #[test]
    fn a_program_that_needs_a_loader_is_not_static() {
        // This test is dynamic, as every program that is built for this machine.
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let found = loader(&own).unwrap();
        assert!(found.contains("/ld-"), "{found}");
        assert_eq!(loader(b""), None);
        assert_eq!(loader(&[0xff; 200]), None);
    }

    #[test]
    fn flags_keep_paths_with_spaces_together() {
        let paths = [Remapped {
            from: PathBuf::from("/home/a b"),
            to: "/cargo".to_owned(),
            inside: &[],
        }];
        let flags = |target| {
            let flags = rust_flags(target, &paths).into_string().unwrap();
            flags
                .split('\x1f')
                .map(str::to_owned)
                .collect::<Vec<String>>()
        };
        let wanted = [
            "-Ctarget-feature=+crt-static",
            "-Clink-arg=-Wl,-z,pack-relative-relocs",
            "--remap-path-prefix=/home/a b=/cargo",
        ];
        assert_eq!(flags(Target::Amd64Gnu), wanted);
        assert_eq!(flags(Target::Amd64Musl), [wanted[0], wanted[2]]);
    }

    #[test]
    fn the_version_of_glibc_is_read_from_its_macros() {
        let macros = "#define __GLIBC_USE(F) x\n#define __GLIBC__ 2\n#define __GLIBC_MINOR__ 36\n";
        assert_eq!(glibc_of_macros(macros).as_deref(), Some("2.36"));
        assert_eq!(glibc_of_macros("#define __linux__ 1\n"), None);
    }
}
