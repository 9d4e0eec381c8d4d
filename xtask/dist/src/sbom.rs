//! The bill of materials of the program, as `CycloneDX` JSON: the packages that are linked, no
//! others.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::image::insert;
use crate::program::Program;
use crate::source::{Metadata, PROGRAM, Package, Source};

/// Writes the bill of materials. `lock` is the text of `Cargo.lock`, which has the checksums.
pub fn bill(source: &Source, program: &Program, metadata: &Metadata, lock: &str) -> Result<String> {
    let checksums = checksums(lock);
    let by_id = metadata.by_id();
    let linked = program
        .packages
        .iter()
        .map(|id| {
            let package = by_id.get(id.as_str()).copied();
            package.with_context(|| format!("cargo metadata does not list {id}"))
        })
        .collect::<Result<Vec<&Package>>>()?;
    let (own, libraries): (Vec<&Package>, Vec<&Package>) = linked
        .into_iter()
        .partition(|package| package.name == PROGRAM && package.source.is_none());
    let own = own.first().context("the program itself is not linked")?;

    let mut components: Vec<Value> = libraries
        .iter()
        .map(|package| component(package, &checksums))
        .collect();
    components.extend(others(program));
    components.sort_by_key(|component| component.get("bom-ref").map(Value::to_string));
    let mut application = component(own, &checksums);
    insert(&mut application, "type", json!("application"));
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": source.created()?,
            "component": application,
            "properties": [
                {"name": "kubevitals:target", "value": program.target.triple()},
            ],
        },
        "components": components,
        "dependencies": dependencies(program, metadata, &by_id),
    });
    let mut text = serde_json::to_string_pretty(&bill)?;
    text.push('\n');
    Ok(text)
}

fn component(package: &Package, checksums: &BTreeMap<(String, String), String>) -> Value {
    let mut component = json!({
        "type": "library",
        "bom-ref": reference(package),
        "name": package.name,
        "version": package.version,
    });
    if let Some(license) = &package.license {
        // Old manifests write a slash for OR.
        let expression = license.replace(" / ", " OR ").replace('/', " OR ");
        let licenses = json!([{"expression": expression}]);
        insert(&mut component, "licenses", licenses);
    }
    if package.source.is_some() {
        insert(&mut component, "purl", json!(reference(package)));
    }
    let key = (package.name.clone(), package.version.clone());
    if let Some(checksum) = checksums.get(&key) {
        let hashes = json!([{"alg": "SHA-256", "content": checksum}]);
        insert(&mut component, "hashes", hashes);
    }
    if let Some(repository) = &package.repository {
        let references = json!([{"type": "vcs", "url": repository}]);
        insert(&mut component, "externalReferences", references);
    }
    component
}

/// What is linked or shipped besides packages of cargo.
fn others(program: &Program) -> [Value; 2] {
    let (name, version) = &program.toolchain.c_library;
    let rust = &program.toolchain.rust;
    [
        json!({
            "type": "library",
            "bom-ref": format!("pkg:generic/rust-std@{rust}"),
            "name": "rust-std",
            "version": rust,
            "description": "Rust's standard library",
            "licenses": [{"expression": "MIT OR Apache-2.0"}],
        }),
        json!({
            "type": "library",
            "bom-ref": format!("pkg:generic/{name}@{version}"),
            "name": name,
            "version": version,
            "description": "the C library, linked statically",
        }),
    ]
}

fn dependencies(
    program: &Program,
    metadata: &Metadata,
    by_id: &BTreeMap<&str, &Package>,
) -> Vec<Value> {
    let of = |id: &String| {
        let package = by_id
            .get(id.as_str())
            .filter(|_| program.packages.contains(id));
        package.map(|package| reference(package))
    };
    let nodes = metadata.resolve.iter().flat_map(|resolve| &resolve.nodes);
    let edges: BTreeMap<String, BTreeSet<String>> = nodes
        .filter_map(|node| {
            Some((
                of(&node.id)?,
                node.dependencies.iter().filter_map(of).collect(),
            ))
        })
        .collect();
    edges
        .into_iter()
        .map(|(from, to)| json!({"ref": from, "dependsOn": to}))
        .collect()
}

/// The package URL; packages of the workspace are in no registry, but named alike.
fn reference(package: &Package) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version)
}

/// The checksums in `Cargo.lock`, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let field = |block: &str, name: &str| {
        let mut lines = block.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \""))?;
        value.strip_suffix('"').map(str::to_owned)
    };
    lock.split("[[package]]")
        .filter_map(|block| {
            let key = (field(block, "name")?, field(block, "version")?);
            Some((key, field(block, "checksum")?))
        })
        .collect()
}
