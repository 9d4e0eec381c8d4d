//! Pods that the kubelet reads from files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::error::E2eError;
use crate::namespace::TestNamespace;

/// A static pod: the kubelet stops it when this is dropped, and deletes its mirror.
#[derive(Debug)]
pub struct StaticPod {
    /// The name of its mirror in the API.
    pub mirror: String,
    file: PathBuf,
}

impl StaticPod {
    /// Writes the manifest of a pod into the folder of the kubelet.
    pub fn start(namespace: &TestNamespace, manifest: &Value) -> Result<Self, E2eError> {
        let cluster = namespace.cluster();
        let name = manifest.pointer("/metadata/name").and_then(Value::as_str);
        let name = name.unwrap_or_default();
        let mut manifest = manifest.clone();
        let metadata = manifest.get_mut("metadata").and_then(Value::as_object_mut);
        if let Some(metadata) = metadata {
            metadata.insert("namespace".to_owned(), json!(namespace.name()));
        }
        // Distinct from those of tests beside this one.
        let file = cluster
            .static_pod_folder()
            .join(format!("{}-{name}.json", namespace.name()));
        write_at_once(&file, &manifest.to_string()).map_err(|source| E2eError::Write {
            path: file.clone(),
            source,
        })?;
        Ok(Self {
            mirror: format!("{name}-{}", cluster.node_name()),
            file,
        })
    }
}

impl Drop for StaticPod {
    fn drop(&mut self) {
        // The next run removes a file that is left.
        let _ = fs::remove_file(&self.file);
    }
}

/// Removes the static pods of runs that were killed.
pub(crate) fn remove_all(cluster: &Cluster) -> Result<(), E2eError> {
    let folder = cluster.static_pod_folder();
    let remove = || {
        for entry in fs::read_dir(folder)? {
            fs::remove_file(entry?.path())?;
        }
        Ok(())
    };
    remove().map_err(|source: io::Error| E2eError::Write {
        path: folder.to_owned(),
        source,
    })
}

/// The kubelet must not read half of a file, and ignores those with a dot.
fn write_at_once(file: &Path, text: &str) -> io::Result<()> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let hidden = file.with_file_name(format!(".{name}"));
    fs::write(&hidden, text)?;
    fs::rename(&hidden, file)
}
