//! The bill of materials: what is linked, and nothing else.

use kubevitals_dist::program::{Program, Toolchain};
use kubevitals_dist::source::Metadata;
use kubevitals_dist::target::Target;
use kubevitals_dist::{licenses, sbom};
use serde_json::Value;

use crate::source;

const METADATA: &str = r#"{
  "target_directory": "/t",
  "packages": [
    {"id": "path+bin", "name": "kubevitals", "version": "1.2.3", "license": "Apache-2.0", "source": null, "manifest_path": "/r/bin/Cargo.toml", "repository": "https://example.com/kubevitals"},
    {"id": "path+tls", "name": "kubevitals-tls", "version": "1.2.3", "license": "Apache-2.0", "source": null, "manifest_path": "/r/tls/Cargo.toml"},
    {"id": "reg+serde", "name": "serde", "version": "1.0.1", "license": "MIT/Apache-2.0", "source": "registry", "manifest_path": "/c/serde/Cargo.toml", "repository": "https://example.com/serde"},
    {"id": "reg+derive", "name": "serde_derive", "version": "1.0.1", "license": "MIT", "source": "registry", "manifest_path": "/c/derive/Cargo.toml"},
    {"id": "reg+cc", "name": "cc", "version": "1.0.0", "license": "MIT", "source": "registry", "manifest_path": "/c/cc/Cargo.toml"}
  ],
  "resolve": {"nodes": [
    {"id": "path+bin", "dependencies": ["path+tls", "reg+serde"]},
    {"id": "path+tls", "dependencies": ["reg+cc"]},
    {"id": "reg+serde", "dependencies": ["reg+derive"]}
  ]}
}"#;

const LOCK: &str = r#"
[[package]]
name = "serde"
version = "1.0.1"
source = "registry"
checksum = "c0ffee"
dependencies = [
 "serde_derive",
]

[[package]]
name = "kubevitals"
version = "1.2.3"
"#;

fn program(packages: &[&str]) -> Program {
    Program {
        target: Target::Amd64Gnu,
        binary: Vec::new(),
        packages: packages.iter().map(ToString::to_string).collect(),
        toolchain: Toolchain {
            rust: "1.95.0".to_owned(),
            c_library: ("glibc".to_owned(), "2.36".to_owned()),
        },
    }
}

fn bill(packages: &[&str]) -> anyhow::Result<Value> {
    let metadata: Metadata = serde_json::from_str(METADATA).unwrap();
    let text = sbom::bill(&source(), &program(packages), &metadata, LOCK)?;
    Ok(serde_json::from_str(&text)?)
}

#[test]
fn a_licence_text_stands_once_below_its_packages() {
    let folder = tempfile::tempdir().unwrap();
    for (name, file, text) in [
        ("serde", "LICENSE-MIT", "MIT of both\r\n"),
        ("serde", "Cargo.toml", "not a licence"),
        ("derive", "LICENSE-MIT", "MIT of both\n"),
        ("derive", "NOTICE", "a notice"),
        ("cc", "README", "nothing"),
    ] {
        std::fs::create_dir_all(folder.path().join(name)).unwrap();
        std::fs::write(folder.path().join(name).join(file), text).unwrap();
    }
    let text = METADATA.replace("/c/", &format!("{}/", folder.path().display()));
    let metadata: Metadata = serde_json::from_str(&text).unwrap();
    let linked = program(&["path+bin", "reg+serde", "reg+derive", "reg+cc"]);
    let texts = licenses::texts(&linked, &metadata).unwrap();
    insta::assert_snapshot!("licenses", texts);
}

#[test]
fn the_bill_lists_what_is_linked_with_checksum_and_licence() {
    let bill = bill(&["path+bin", "path+tls", "reg+serde"]).unwrap();
    insta::assert_snapshot!("bill", serde_json::to_string_pretty(&bill).unwrap());
}

#[test]
fn a_package_that_cargo_does_not_know_is_an_error() {
    let error = bill(&["path+bin", "reg+unknown"]).unwrap_err().to_string();
    assert!(error.contains("reg+unknown"), "{error}");
    let error = bill(&["reg+serde"]).unwrap_err().to_string();
    assert!(error.contains("the program itself"), "{error}");
}
