//! The cache of tools, programs and corpora: outside the source tree, shared by all
//! clones.

use std::path::PathBuf;

use anyhow::{Context, Result};

/// Returns `$KUBEVITALS_CACHE`, or a folder in the user's cache.
pub fn folder() -> Result<PathBuf> {
    let set = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    if let Some(folder) = set("KUBEVITALS_CACHE") {
        return Ok(folder);
    }
    let base = set("XDG_CACHE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .context("neither KUBEVITALS_CACHE nor HOME is set: set one of them")?;
    Ok(base.join("kubevitals"))
}
