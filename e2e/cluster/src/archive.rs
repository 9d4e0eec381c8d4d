//! Container images without a container engine: archives for `ctr images import`.

use std::fmt::Write;
use std::io;

use anyhow::Result;
use aws_lc_rs::digest::{SHA256, digest};
use serde_json::json;
use tar::{Builder, EntryType, Header};

/// Writes a tar archive. Times and owners are zero: the same files give the same bytes.
pub(crate) struct Tar {
    builder: Builder<Vec<u8>>,
}

/// A container image of one layer.
#[derive(Debug, Clone)]
pub(crate) struct Image<'a> {
    /// With its tag.
    pub(crate) name: &'a str,
    pub(crate) entrypoint: &'a [&'a str],
    /// The image's files, as [`Tar::finish`] returns them.
    pub(crate) layer: &'a [u8],
}

impl Default for Tar {
    fn default() -> Self {
        Self {
            builder: Builder::new(Vec::new()),
        }
    }
}

impl Tar {
    pub(crate) fn folder(&mut self, path: &str, mode: u32) -> Result<()> {
        let mut header = header(EntryType::Directory, mode);
        self.builder
            .append_data(&mut header, format!("{path}/"), io::empty())?;
        Ok(())
    }

    pub(crate) fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> Result<()> {
        let mut header = header(EntryType::Regular, mode);
        header.set_size(u64::try_from(content.len())?);
        self.builder.append_data(&mut header, path, content)?;
        Ok(())
    }

    pub(crate) fn link(&mut self, path: &str, target: &str) -> Result<()> {
        let mut header = header(EntryType::Symlink, 0o777);
        self.builder.append_link(&mut header, path, target)?;
        Ok(())
    }

    /// Returns the archive.
    pub(crate) fn finish(self) -> Result<Vec<u8>> {
        Ok(self.builder.into_inner()?)
    }
}

impl Image<'_> {
    /// Returns the image in the format of `docker save`. The names of its parts are their hashes.
    pub(crate) fn archive(&self) -> Result<Vec<u8>> {
        let layer = sha256(self.layer);
        let config = serde_json::to_vec(&json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {"Entrypoint": self.entrypoint, "Env": ["PATH=/bin"], "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer}")]},
            "history": [{"created_by": "cargo xtask cluster"}],
        }))?;
        let config_file = format!("{}.json", sha256(&config));
        let layer_file = format!("{layer}.tar");
        let manifest =
            json!([{"Config": config_file, "RepoTags": [self.name], "Layers": [layer_file]}]);
        let mut tar = Tar::default();
        tar.file(&config_file, 0o644, &config)?;
        tar.file(&layer_file, 0o644, self.layer)?;
        tar.file("manifest.json", 0o644, &serde_json::to_vec(&manifest)?)?;
        tar.finish()
    }
}

fn header(kind: EntryType, mode: u32) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(0);
    header
}

fn sha256(bytes: &[u8]) -> String {
    let mut hex = String::new();
    for byte in digest(&SHA256, bytes).as_ref() {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// Returns the architecture of this machine as container runtimes name it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    /// Lists an archive with the tar of the system.
    fn listed(bytes: &[u8]) -> String {
        let mut tar = Command::new("tar")
            .args([
                "--list",
                "--verbose",
                "--numeric-owner",
                "--utc",
                "--file=-",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        tar.stdin.take().unwrap().write_all(bytes).unwrap();
        let output = tar.wait_with_output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn the_tar_of_the_system_reads_the_archive() {
        let mut tar = Tar::default();
        tar.folder("bin", 0o755).unwrap();
        tar.file("bin/tool", 0o755, &[7; 1000]).unwrap();
        tar.link("bin/sh", "tool").unwrap();
        tar.folder("tmp", 0o1777).unwrap();
        let bytes = tar.finish().unwrap();
        insta::assert_snapshot!(listed(&bytes), @r"
        drwxr-xr-x 0/0               0 1970-01-01 00:00 bin/
        -rwxr-xr-x 0/0            1000 1970-01-01 00:00 bin/tool
        lrwxrwxrwx 0/0               0 1970-01-01 00:00 bin/sh -> tool
        drwxrwxrwt 0/0               0 1970-01-01 00:00 tmp/
        ");
    }

    #[test]
    fn an_image_changes_its_name_with_its_content() {
        let archive = |layer: &[u8]| {
            Image {
                name: "kubevitals.test/x:1",
                entrypoint: &["/bin/x"],
                layer,
            }
            .archive()
            .unwrap()
        };
        assert_eq!(archive(b"same"), archive(b"same"));
        let names = |bytes: &[u8]| {
            listed(bytes)
                .lines()
                .map(|line| line.rsplit(' ').next().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        let (one, other) = (names(&archive(b"one")), names(&archive(b"other")));
        assert_eq!(one.len(), 3);
        assert_ne!(one[0], other[0]);
        assert_ne!(one[1], other[1]);
        assert_eq!(one[2], "manifest.json");
    }
}
