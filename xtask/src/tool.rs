//! Pinned tools from the registry of crates, built into the cache on first use.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, bail};
use xtask::cache;
use xtask::step::{self, cargo};

/// A crate with a program of the same name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// Flags of `cargo install`, such as features. Raise the version when they change.
    pub(crate) flags: &'static [&'static str],
}

impl Tool {
    /// Returns the program in the cache.
    pub(crate) fn installed(&self) -> Result<PathBuf> {
        let Self { name, version, .. } = self;
        let root = cache::folder()?.join(format!("{name}-{version}"));
        let program = root.join("bin").join(name);
        if works(&program) {
            return Ok(program);
        }
        println!("building {name} {version} into the cache; this takes some minutes, once");
        // Retried once: a registry may be slow for a moment.
        self.install(&root).or_else(|_| self.install(&root))?;
        if !works(&program) {
            bail!("{} was installed but does not run", program.display());
        }
        Ok(program)
    }

    fn install(&self, root: &Path) -> Result<()> {
        let mut install = cargo();
        install.args(["install", "--locked", "--quiet", "--force"]);
        install.args(self.flags);
        install.arg(format!("--version={}", self.version));
        step::run(install.arg("--root").arg(root).arg(self.name))
    }
}

fn works(program: &Path) -> bool {
    Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
