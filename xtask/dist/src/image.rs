//! Container images without a container engine: one layer, as an OCI or a Docker archive.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Value, json};

use crate::archive::{Files, gzip, sha256};

/// A container image of one layer.
#[derive(Debug, Clone)]
pub struct Image {
    pub architecture: Architecture,
    pub config: Config,
    /// RFC 3339.
    pub created: Option<String>,
    pub compression: Compression,
    pub files: Files,
}

/// How the layer is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// For registries.
    Gzip,
    /// For an import on this machine, which it saves time.
    None,
}

/// The settings of a container, in the names of the OCI image specification.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Config {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    pub env: Vec<String>,
    pub entrypoint: Vec<String>,
    pub working_dir: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// A processor architecture, by the name that container runtimes use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Architecture {
    Amd64,
    Arm64,
}

/// The format of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// An OCI image layout in a tar archive: for registries, containerd and podman.
    Oci,
    /// The format of `docker save`: for `docker load`. One image only.
    Docker,
}

/// An image in an archive.
#[derive(Debug, Clone)]
pub struct Archive {
    pub bytes: Vec<u8>,
    /// Of an OCI archive what a registry shows: the digest of the manifest, or of the index of
    /// several. Of a Docker archive the ID of the image.
    pub digest: String,
    /// What a node downloads for each image: layer and configuration.
    pub download_bytes: Vec<usize>,
}

/// A part of an archive that is named by its digest.
struct Blob {
    media_type: &'static str,
    bytes: Vec<u8>,
    digest: String,
}

/// The blobs of one image.
struct Blobs {
    layer: Blob,
    config: Blob,
    manifest: Blob,
}

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const GZIP_LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

impl Architecture {
    /// The architecture of this machine.
    pub fn of_host() -> Result<Self> {
        Ok(match std::env::consts::ARCH {
            "x86_64" => Self::Amd64,
            "aarch64" => Self::Arm64,
            other => bail!("no images are built for {other}: name one with --arch"),
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }
}

impl Image {
    fn blobs(&self) -> Result<Blobs> {
        let tar = self.files.tar()?;
        let content = format!("sha256:{}", sha256(&tar));
        let layer = match self.compression {
            Compression::Gzip => Blob::new(GZIP_LAYER, gzip(&tar)?),
            Compression::None => Blob::new(LAYER, tar),
        };
        let mut step = json!({"created_by": "cargo xtask image"});
        let mut config = json!({
            "architecture": self.architecture.name(),
            "os": "linux",
            "config": self.config,
            "rootfs": {"type": "layers", "diff_ids": [content]},
        });
        if let Some(created) = &self.created {
            insert(&mut step, "created", json!(created));
            insert(&mut config, "created", json!(created));
        }
        insert(&mut config, "history", json!([step]));
        let config = Blob::new(CONFIG, serde_json::to_vec(&config)?);
        let mut manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.descriptor(),
            "layers": [layer.descriptor()],
        });
        if !self.config.labels.is_empty() {
            insert(&mut manifest, "annotations", json!(self.config.labels));
        }
        let manifest = Blob::new(MANIFEST, serde_json::to_vec(&manifest)?);
        Ok(Blobs {
            layer,
            config,
            manifest,
        })
    }
}

impl Blob {
    fn new(media_type: &'static str, bytes: Vec<u8>) -> Self {
        let digest = sha256(&bytes);
        Self {
            media_type,
            bytes,
            digest,
        }
    }

    fn path(&self) -> String {
        format!("blobs/sha256/{}", self.digest)
    }

    fn descriptor(&self) -> Value {
        json!({
            "mediaType": self.media_type,
            "digest": format!("sha256:{}", self.digest),
            "size": self.bytes.len(),
        })
    }
}

/// Writes images of one name, each of another architecture. `name` has a tag.
pub fn archive(name: &str, images: &[Image], format: Format) -> Result<Archive> {
    let Some((_, tag)) = name.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')) else {
        bail!("the image name `{name}` has no tag: write NAME:TAG");
    };
    let all = images
        .iter()
        .map(|image| Ok((image.architecture, image.blobs()?)))
        .collect::<Result<Vec<_>>>()?;
    let mut files = Files::default();
    files.folder("blobs", 0o755);
    files.folder("blobs/sha256", 0o755);
    for (_, blobs) in &all {
        for blob in [&blobs.config, &blobs.layer] {
            files.file(&blob.path(), 0o644, blob.bytes.as_slice());
        }
    }
    let download_bytes = all
        .iter()
        .map(|(_, blobs)| blobs.layer.bytes.len() + blobs.config.bytes.len())
        .collect();
    let digest = match format {
        Format::Docker => {
            let [(_, blobs)] = all.as_slice() else {
                bail!("a Docker archive holds one architecture: name one, or write -o oci");
            };
            let manifest = json!([{
                "Config": blobs.config.path(),
                "RepoTags": [name],
                "Layers": [blobs.layer.path()],
            }]);
            files.file("manifest.json", 0o644, serde_json::to_vec(&manifest)?);
            blobs.config.digest.clone()
        }
        Format::Oci => {
            for (_, blobs) in &all {
                files.file(
                    &blobs.manifest.path(),
                    0o644,
                    blobs.manifest.bytes.as_slice(),
                );
            }
            let manifests: Vec<Value> = all
                .iter()
                .map(|(architecture, blobs)| {
                    let platform = json!({"architecture": architecture.name(), "os": "linux"});
                    let mut descriptor = blobs.manifest.descriptor();
                    insert(&mut descriptor, "platform", platform);
                    descriptor
                })
                .collect();
            // Several architectures under one name are an index of their own, so that the name in
            // the layout stands for one thing.
            let (mut top, digest) = match (manifests.as_slice(), all.as_slice()) {
                ([], _) => bail!("no image to write"),
                ([only], [(_, blobs)]) => (only.clone(), blobs.manifest.digest.clone()),
                _ => {
                    let index = index(&manifests)?;
                    files.file(&index.path(), 0o644, index.bytes.as_slice());
                    (index.descriptor(), index.digest)
                }
            };
            // The first is the tag alone by the specification, the second is what containerd reads.
            let names = json!({
                "org.opencontainers.image.ref.name": tag,
                "io.containerd.image.name": name,
            });
            insert(&mut top, "annotations", names);
            files.file("index.json", 0o644, index(&[top])?.bytes);
            let layout = json!({"imageLayoutVersion": "1.0.0"});
            files.file("oci-layout", 0o644, serde_json::to_vec(&layout)?);
            digest
        }
    };
    Ok(Archive {
        bytes: files.tar()?,
        digest: format!("sha256:{digest}"),
        download_bytes,
    })
}

fn index(manifests: &[Value]) -> Result<Blob> {
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests});
    Ok(Blob::new(INDEX, serde_json::to_vec(&index)?))
}

/// Sets a field of a JSON object.
pub(crate) fn insert(object: &mut Value, key: &str, value: Value) {
    if let Some(object) = object.as_object_mut() {
        object.insert(key.to_owned(), value);
    }
}
