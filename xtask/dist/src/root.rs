//! The files of the image, and how a container starts.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use xtask::step;

use crate::archive::Files;
use crate::image::{Architecture, Compression, Config, Image};
use crate::program::Program;
use crate::source::{Metadata, PROGRAM, Source};
use crate::{licenses, sbom};

/// Everything in the image that is ours, before it is packed.
#[derive(Debug, Clone)]
pub struct Root {
    pub architecture: Architecture,
    pub files: Files,
    pub documents: Documents,
}

/// Texts that are shipped with the program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Documents {
    /// The bill of materials.
    pub sbom: String,
    pub license: String,
    /// The licences of all packages that are linked.
    pub licenses_of_others: String,
}

/// A user without a name, and its group: there is no `/etc/passwd`.
pub const USER: &str = "65532:65532";

/// The program in the image.
pub const ENTRYPOINT: &str = "/bin/kubevitals";

/// Links to the program, which reads its name. The last one is where metrics-server's image has its
/// program.
pub const LINKS: [(&str, &str); 3] = [
    ("bin/kubectl-vitals", PROGRAM),
    ("bin/metrics-server", PROGRAM),
    ("metrics-server", "bin/kubevitals"),
];

/// Where the documents lie in the image.
const DOCUMENTS: &str = "usr/share/doc/kubevitals";

/// The names of the documents.
const SBOM: &str = "kubevitals.cdx.json";
const LICENSE: &str = "LICENSE";
const LICENSES_OF_OTHERS: &str = "LICENSES-OF-OTHERS.txt";

/// One of the paths at which TLS libraries look for the authorities.
const AUTHORITIES: &str = "etc/ssl/certs/ca-certificates.crt";

impl Root {
    /// Puts the program and what belongs to it together.
    pub fn new(source: &Source, program: &Program) -> Result<Self> {
        let metadata = Metadata::read(true)?;
        let lock = read(&step::root().join("Cargo.lock"))?;
        let documents = Documents {
            sbom: sbom::bill(source, program, &metadata, &lock)?,
            license: read(&step::root().join(LICENSE))?,
            licenses_of_others: licenses::texts(program, &metadata)?,
        };
        Ok(Self {
            architecture: program.target.architecture(),
            files: files(&program.binary, &documents),
            documents,
        })
    }

    /// Returns the image.
    pub fn image(&self, source: &Source, compression: Compression) -> Result<Image> {
        Ok(Image {
            compression,
            architecture: self.architecture,
            config: config(source)?,
            created: Some(source.created()?),
            files: self.files.clone(),
        })
    }
}

impl Documents {
    /// The texts and the names of their files.
    pub(crate) fn named(&self) -> [(&'static str, &str); 3] {
        [
            (LICENSE, &self.license),
            (LICENSES_OF_OTHERS, &self.licenses_of_others),
            (SBOM, &self.sbom),
        ]
    }
}

/// How a container starts.
pub fn config(source: &Source) -> Result<Config> {
    Ok(Config {
        user: USER.to_owned(),
        env: vec!["PATH=/bin".to_owned()],
        entrypoint: vec![ENTRYPOINT.to_owned()],
        working_dir: "/".to_owned(),
        labels: labels(source)?,
    })
}

fn labels(source: &Source) -> Result<BTreeMap<String, String>> {
    let mut labels = BTreeMap::from([
        ("title", PROGRAM.to_owned()),
        ("description", source.description.clone()),
        ("source", source.repository.clone()),
        ("version", source.version.clone()),
        ("licenses", source.license.clone()),
        ("created", source.created()?),
    ]);
    if let Some(revision) = &source.revision {
        labels.insert("revision", revision.clone());
    }
    let prefixed = labels.into_iter();
    Ok(prefixed
        .map(|(name, value)| (format!("org.opencontainers.image.{name}"), value))
        .collect())
}

/// The files of the image.
pub fn files(binary: &[u8], documents: &Documents) -> Files {
    let mut files = Files::default();
    files.folder("bin", 0o755);
    files.file(ENTRYPOINT.trim_start_matches('/'), 0o755, binary);
    for (path, target) in LINKS {
        files.link(path, target);
    }
    for folder in ["etc", "etc/ssl", "etc/ssl/certs"] {
        files.folder(folder, 0o755);
    }
    files.file(AUTHORITIES, 0o644, authorities());
    files.folder("tmp", 0o1777);
    for folder in ["usr", "usr/share", "usr/share/doc", DOCUMENTS] {
        files.folder(folder, 0o755);
    }
    for (name, text) in documents.named() {
        files.file(&format!("{DOCUMENTS}/{name}"), 0o644, text);
    }
    files
}

/// Returns Mozilla's certificate authorities as PEM.
fn authorities() -> String {
    let mut text = String::new();
    for certificate in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let encoded = BASE64_STANDARD.encode(certificate);
        let mut rest = encoded.as_str();
        while let Some((line, next)) = rest.split_at_checked(64) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{line}");
            rest = next;
        }
        if !rest.is_empty() {
            let _ = writeln!(text, "{rest}");
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
