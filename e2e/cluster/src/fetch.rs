//! `cargo xtask fetch`: the real programs that ours is tested and measured with.
//!
//! They are built from the Go modules in `e2e/kube`, whose `go.mod` and `go.sum` say which
//! versions; what was built is kept in the cache under a name that changes with everything that
//! went into it, and is used again by all clones.

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

/// What to build
#[derive(Debug, Args)]
pub(crate) struct FetchFlags {
    /// Programs to build; default: those that the end-to-end tests need
    #[arg(value_name = "NAME")]
    names: Vec<Program>,
    /// Show what is built and where, and build nothing
    #[arg(long)]
    list: bool,
    /// Also install what a node takes from Debian's packages (as root)
    #[arg(long, conflicts_with = "list")]
    debian: bool,
}

pub(crate) fn run(flags: &FetchFlags) -> Result<()> {
    if flags.list {
        return list(&flags.names);
    }
    if flags.debian {
        debian(&Package::ALL)?;
    }
    let wanted = if flags.names.is_empty() {
        Program::for_e2e()
    } else {
        flags.names.clone()
    };
    programs(&wanted)?;
    list(&wanted)
}

/// Where this program is; it is built first if it is missing.
pub(crate) fn program(program: Program) -> Result<PathBuf> {
    let entry = entry(program)?;
    build::ensure(&entry, &mut |entry, folder| {
        build::with_go(entry, folder, &modules().join(program.recipe().folder))
    })
}

/// Where these programs are, in the order asked for; those that are missing are built first.
pub(crate) fn programs(wanted: &[Program]) -> Result<Vec<PathBuf>> {
    wanted.iter().copied().map(program).collect()
}

fn list(names: &[Program]) -> Result<()> {
    let names = if names.is_empty() {
        Program::ALL.to_vec()
    } else {
        names.to_vec()
    };
    for program in names {
        let entry = entry(program)?;
        let place = entry.program();
        let state = if place.is_file() {
            place.display().to_string()
        } else {
            "not built".to_owned()
        };
        println!("{:<24} {:<9} {state}", program.name(), entry.version);
    }
    Ok(())
}

/// The place in the cache that belongs to this program as it stands in the source tree.
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
        arguments,
    })
}

fn modules() -> PathBuf {
    step::root().join("e2e/kube")
}

fn programs_folder() -> Result<PathBuf> {
    let folder = cache::folder()?.join("programs");
    make(&folder)?;
    // The cache may be given relative to where we stand; whoever runs a program may stand
    // elsewhere.
    folder
        .canonicalize()
        .with_context(|| format!("cannot find {}", folder.display()))
}

fn make(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_has_a_pinned_version_and_a_key_of_its_own() {
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
        let of = |program: Program| {
            let recipe = program.recipe();
            let module = Module::read(&modules().join(recipe.folder)).unwrap();
            module.version_of(recipe.versioned_by).unwrap()
        };
        assert_eq!(of(Program::Kubelet), of(Program::KubeApiserver));
        assert_eq!(of(Program::Kubelet), of(Program::Kubectl));
    }
}
