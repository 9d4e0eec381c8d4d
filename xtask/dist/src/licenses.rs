//! The licence texts of all packages that are linked: most licences ask that copies carry them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};

use crate::program::Program;
use crate::source::{Metadata, Package};

/// How the names of files with such texts begin.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT"];

/// Returns every text once, below the packages that it belongs to.
pub fn texts(program: &Program, metadata: &Metadata) -> Result<String> {
    let by_id = metadata.by_id();
    let linked = program.packages.iter();
    let packages = linked.filter_map(|id| by_id.get(id.as_str()).copied());
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut without = Vec::new();
    for package in packages.filter(|package| package.source.is_some()) {
        let found = of_package(package)?;
        let name = format!("{} {}", package.name, package.version);
        if found.is_empty() {
            let license = package.license.as_deref().unwrap_or("no licence");
            without.push(format!("{name} ({license})"));
        }
        for text in found {
            texts.entry(text).or_default().insert(name.clone());
        }
    }
    // By name rather than by text.
    let mut sorted: Vec<(BTreeSet<String>, String)> = texts
        .into_iter()
        .map(|(text, names)| (names, text))
        .collect();
    sorted.sort();
    let mut out = String::from("Licences of the packages that kubevitals is linked with.\n");
    for (names, text) in sorted {
        let names: Vec<String> = names.into_iter().collect();
        // Writing to a string cannot fail.
        let _ = write!(out, "\n==== {}\n\n{text}\n", names.join(", "));
    }
    if !without.is_empty() {
        without.sort();
        let _ = write!(out, "\n==== without a text\n\n{}\n", without.join("\n"));
    }
    Ok(out)
}

fn of_package(package: &Package) -> Result<BTreeSet<String>> {
    let folder = package.manifest_path.parent().unwrap_or(Path::new("/"));
    let context = || format!("cannot read {}", folder.display());
    let mut texts = BTreeSet::new();
    for entry in std::fs::read_dir(folder).with_context(context)? {
        let entry = entry.with_context(context)?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        if NAMES.iter().any(|wanted| name.starts_with(wanted)) && entry.path().is_file() {
            let bytes = std::fs::read(entry.path()).with_context(context)?;
            let text = String::from_utf8_lossy(&bytes).replace("\r\n", "\n");
            texts.insert(text.trim().to_owned());
        }
    }
    Ok(texts)
}
