//! `cargo xtask fetch`: the programs that ours is tested with and compared to.
//!
//! They are built from the Go modules in `e2e/kube`, whose `go.mod` and `go.sum` pin the versions,
//! into a cache that all clones share, under a name that depends on all inputs of the build.

mod build;
mod debian;
mod module;
mod progress;
mod table;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;

use self::build::Entry;
pub(crate) use self::debian::{Package, debian};
use self::module::Module;
pub(crate) use self::table::Program;
use xtask::cache;
use xtask::step;

/// Programs to build
#[derive(Debug, Args)]
pub(crate) struct FetchFlags {
    /// Programs to build; default: those that the end-to-end tests need
    #[arg(value_name = "NAME")]
    names: Vec<Program>,
    /// List programs and their paths, and build nothing
    #[arg(long)]
    list: bool,
    /// Also install the Debian packages of a node (as root)
    #[arg(long, conflicts_with = "list")]
    debian: bool,
}

pub(crate) fn run(flags: &FetchFlags) -> Result<()> {
    if flags.list {
        return list(&flags.names);
    }
    if flags.debian {
        debian(&Package::NODE)?;
    }
    let wanted = if flags.names.is_empty() {
        Program::for_e2e()
    } else {
        flags.names.clone()
    };
    programs(&wanted)?;
    list(&wanted)
}

/// Returns the path of this program, built first if it is missing.
pub(crate) fn program(program: Program) -> Result<PathBuf> {
    let entry = entry(program)?;
    build::ensure(&entry, &mut |entry, folder| {
        build::with_go(entry, folder, &modules().join(program.recipe().folder))
    })
}

/// Returns the paths of these programs, built first if they are missing.
pub(crate) fn programs(wanted: &[Program]) -> Result<Vec<PathBuf>> {
    wanted.iter().copied().map(program).collect()
}

/// Returns the pinned version of this program.
pub(crate) fn version(program: Program) -> Result<String> {
    let recipe = program.recipe();
    Module::read(&modules().join(recipe.folder))?.version_of(recipe.versioned_by)
}

fn list(names: &[Program]) -> Result<()> {
    let names = if names.is_empty() {
        Program::ALL.to_vec()
    } else {
        names.to_vec()
    };
    for program in names {
        let entry = entry(program)?;
        let path = entry.program();
        let state = if path.is_file() {
            path.display().to_string()
        } else {
            "not built".to_owned()
        };
        println!("{:<24} {:<9} {state}", program.name(), entry.version);
    }
    Ok(())
}

/// Returns the cache entry of this program for the current source tree.
fn entry(program: Program) -> Result<Entry> {
    let recipe = program.recipe();
    let module = Module::read(&modules().join(recipe.folder))?;
    let version = module.version_of(recipe.versioned_by)?;
    let arguments = recipe.build_arguments(&version)?;
    let key = module.key(&arguments);
    Ok(Entry {
        name: program.name().to_owned(),
        folder: programs_folder()?.join(format!("{}-{version}-{key:016x}", program.name())),
        version,
        goal: recipe.goal,
        arguments,
    })
}

fn modules() -> PathBuf {
    step::root().join("e2e/kube")
}

fn programs_folder() -> Result<PathBuf> {
    let folder = cache::folder()?.join("programs");
    make(&folder)?;
    // The cache may be a relative path; callers may run a program in another folder.
    folder
        .canonicalize()
        .with_context(|| format!("cannot find {}", folder.display()))
}

fn make(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_has_a_pinned_version_and_a_unique_key() {
        let mut folders = Vec::new();
        for program in Program::ALL {
            let recipe = program.recipe();
            let module = Module::read(&modules().join(recipe.folder)).unwrap();
            let version = module.version_of(recipe.versioned_by).unwrap();
            assert!(version.starts_with('v'), "{program:?}: {version}");
            let arguments = recipe.build_arguments(&version).unwrap();
            folders.push((program.name(), module.key(&arguments)));
        }
        folders.sort_unstable();
        folders.dedup();
        assert_eq!(folders.len(), Program::ALL.len());
    }

    #[test]
    fn the_programs_of_one_module_have_one_version() {
        let of = |program| version(program).unwrap();
        assert_eq!(of(Program::Kubelet), of(Program::KubeApiserver));
        assert_eq!(of(Program::Kubelet), of(Program::Kubectl));
    }
}
