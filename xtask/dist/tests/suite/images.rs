//! Archives that hold an image: their layout, and the same bytes for the same input.

use std::collections::BTreeMap;
use std::io::Read;

use flate2::read::GzDecoder;
use kubevitals_dist::archive::sha256;
use kubevitals_dist::image::{self, Architecture, Compression, Format, Image};
use kubevitals_dist::root::{self, Documents, Root};
use serde_json::Value;

use crate::source;

const NAME: &str = "registry.example/kubevitals:1.2.3";

fn image(architecture: Architecture, binary: &[u8]) -> Image {
    let root = Root {
        architecture,
        files: root::files(binary, &Documents::default()),
        documents: Documents::default(),
    };
    root.image(&source(), Compression::Gzip).unwrap()
}

/// The files of an archive.
fn unpacked(bytes: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut archive = tar::Archive::new(bytes);
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().display().to_string();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        (path, content)
    });
    entries.collect()
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

/// Follows a descriptor, whose digest and size must be those of the blob.
fn blob<'a>(files: &'a BTreeMap<String, Vec<u8>>, descriptor: &Value) -> &'a [u8] {
    let digest = descriptor["digest"].as_str().unwrap();
    let hash = digest.strip_prefix("sha256:").unwrap();
    let blob = &files[&format!("blobs/sha256/{hash}")];
    assert_eq!(sha256(blob), hash);
    assert_eq!(descriptor["size"], blob.len());
    blob
}

#[test]
fn the_same_input_gives_the_same_archive() {
    for format in [Format::Oci, Format::Docker] {
        let archive = |binary: &[u8]| {
            image::archive(NAME, &[image(Architecture::Amd64, binary)], format).unwrap()
        };
        let (one, two, other) = (archive(b"same"), archive(b"same"), archive(b"other"));
        assert_eq!(one.bytes, two.bytes);
        assert_eq!(one.digest, two.digest);
        assert_ne!(one.digest, other.digest);
    }
}

#[test]
fn an_oci_archive_leads_from_the_name_to_the_program() {
    let archive =
        image::archive(NAME, &[image(Architecture::Amd64, b"program")], Format::Oci).unwrap();
    let files = unpacked(&archive.bytes);
    assert_eq!(json(&files["oci-layout"])["imageLayoutVersion"], "1.0.0");
    let index = json(&files["index.json"]);
    assert_eq!(index["manifests"].as_array().unwrap().len(), 1);
    let top = &index["manifests"][0];
    assert_eq!(
        top["annotations"]["org.opencontainers.image.ref.name"],
        "1.2.3"
    );
    assert_eq!(top["annotations"]["io.containerd.image.name"], NAME);
    assert_eq!(top["platform"]["architecture"], "amd64");
    assert_eq!(top["digest"], archive.digest.as_str());
    let manifest = json(blob(&files, top));
    let config = json(blob(&files, &manifest["config"]));
    let mut shown = config.clone();
    // Depends on the data of the authorities.
    shown.as_object_mut().unwrap().remove("rootfs");
    insta::assert_snapshot!("config", serde_json::to_string_pretty(&shown).unwrap());
    let layer = &manifest["layers"][0];
    let mut tar = Vec::new();
    let packed = blob(&files, layer);
    GzDecoder::new(packed).read_to_end(&mut tar).unwrap();
    assert_eq!(
        config["rootfs"]["diff_ids"][0],
        format!("sha256:{}", sha256(&tar))
    );
    assert_eq!(
        manifest["annotations"], config["config"]["Labels"],
        "registries show annotations, engines show labels"
    );
    let inside = unpacked(&tar);
    assert_eq!(inside["bin/kubevitals"], b"program");
}

#[test]
fn the_layer_has_the_program_its_links_and_what_it_needs() {
    let files = root::files(b"program", &Documents::default());
    let bytes = files.tar().unwrap();
    let mut tar = tar::Archive::new(bytes.as_slice());
    let mut lines = Vec::new();
    for entry in tar.entries().unwrap() {
        let entry = entry.unwrap();
        let header = entry.header();
        assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
        assert_eq!(header.mtime().unwrap(), 0);
        let path = entry.path().unwrap().display().to_string();
        let target = entry.link_name().unwrap();
        let target = target.map_or(String::new(), |target| format!(" -> {}", target.display()));
        lines.push(format!("{:04o} {path}{target}", header.mode().unwrap()));
    }
    insta::assert_snapshot!("layer", lines.join("\n"));
}

/// A bundle that TLS libraries cannot read would go unnoticed until the first connection.
#[test]
fn the_authorities_are_pem() {
    let bytes = root::files(b"", &Documents::default()).tar().unwrap();
    let files = unpacked(&bytes);
    let text = String::from_utf8(files["etc/ssl/certs/ca-certificates.crt"].clone()).unwrap();
    let begins = text.matches("-----BEGIN CERTIFICATE-----\n").count();
    let ends = text.matches("-----END CERTIFICATE-----\n").count();
    assert_eq!(begins, ends);
    assert!(begins > 100, "{begins} authorities");
    assert!(
        text.lines()
            .all(|line| !line.is_empty() && line.len() <= 64)
    );
}

#[test]
fn a_docker_archive_names_its_parts() {
    let archive =
        image::archive(NAME, &[image(Architecture::Arm64, b"x")], Format::Docker).unwrap();
    let files = unpacked(&archive.bytes);
    let manifest = json(&files["manifest.json"]);
    assert_eq!(manifest[0]["RepoTags"][0], NAME);
    let config = json(&files[manifest[0]["Config"].as_str().unwrap()]);
    assert_eq!(config["architecture"], "arm64");
    assert!(files.contains_key(manifest[0]["Layers"][0].as_str().unwrap()));
}

#[test]
fn several_architectures_are_one_image_of_an_oci_archive() {
    let both = [
        image(Architecture::Amd64, b"one"),
        image(Architecture::Arm64, b"two"),
    ];
    let archive = image::archive(NAME, &both, Format::Oci).unwrap();
    let files = unpacked(&archive.bytes);
    let top = &json(&files["index.json"])["manifests"][0];
    assert_eq!(top["digest"], archive.digest.as_str());
    let index = json(blob(&files, top));
    let manifests = index["manifests"].as_array().unwrap();
    let architectures: Vec<&Value> = manifests
        .iter()
        .map(|manifest| {
            let config = &json(blob(&files, manifest))["config"];
            let config = json(blob(&files, config));
            assert_eq!(manifest["platform"]["architecture"], config["architecture"]);
            &manifest["platform"]["architecture"]
        })
        .collect();
    assert_eq!(architectures, ["amd64", "arm64"]);
    assert!(image::archive(NAME, &both, Format::Docker).is_err());
}

#[test]
fn a_name_without_a_tag_is_rejected() {
    let images = [image(Architecture::Amd64, b"x")];
    for name in ["kubevitals", "registry.example:5000/kubevitals"] {
        let error = image::archive(name, &images, Format::Oci).unwrap_err();
        assert!(error.to_string().contains("has no tag"), "{error}");
    }
}
