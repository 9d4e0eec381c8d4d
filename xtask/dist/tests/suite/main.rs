//! What is shipped, from the outside.
#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod dockerfile;
mod images;
mod sboms;
mod versions;

use std::path::{Path, PathBuf};

use kubevitals_dist::source::Source;

/// Read at run time: clones may share a target folder, and with it this binary.
fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").unwrap();
    let mut folders = Path::new(&manifest).ancestors();
    let root = folders.find(|folder| folder.join("Cargo.lock").is_file());
    root.unwrap().to_path_buf()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

fn source() -> Source {
    Source {
        version: "1.2.3".to_owned(),
        revision: Some("0123abcd".to_owned()),
        time: 1_700_000_000,
        repository: "https://example.com/kubevitals".to_owned(),
        image: "registry.example/kubevitals".to_owned(),
        description: "Reads the vital signs of a Kubernetes cluster".to_owned(),
        license: "Apache-2.0".to_owned(),
    }
}
