//! Container images without a container engine: a tar that `ctr images import` takes.

use std::fmt::Write;

use anyhow::{Context, Result};
use aws_lc_rs::digest::{SHA256, digest};
use serde_json::json;

/// A tar archive in the making, in the format of POSIX 1988. Times and owners are zero: the same
/// files give the same bytes.
#[derive(Debug, Default)]
pub(crate) struct Tar {
    bytes: Vec<u8>,
}

/// What an image does when it is started.
#[derive(Debug, Clone)]
pub(crate) struct Image<'a> {
    /// With its tag.
    pub(crate) name: &'a str,
    pub(crate) entrypoint: &'a [&'a str],
    /// The image's files, as [`Tar::finish`] returns them.
    pub(crate) layer: &'a [u8],
}

const BLOCK: usize = 512;

impl Tar {
    pub(crate) fn folder(&mut self, path: &str, mode: u32) -> Result<()> {
        self.entry(&format!("{path}/"), mode, b'5', "", &[])
    }

    pub(crate) fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> Result<()> {
        self.entry(path, mode, b'0', "", content)
    }

    pub(crate) fn link(&mut self, path: &str, target: &str) -> Result<()> {
        self.entry(path, 0o777, b'2', target, &[])
    }

    /// The archive, with the two empty blocks that end it.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 2 * BLOCK, 0);
        self.bytes
    }

    fn entry(
        &mut self,
        path: &str,
        mode: u32,
        kind: u8,
        target: &str,
        content: &[u8],
    ) -> Result<()> {
        let mut header = [0_u8; BLOCK];
        put(&mut header, 0, 99, path.as_bytes())
            .with_context(|| format!("{path} is too long for a tar"))?;
        put(&mut header, 100, 7, format!("{mode:07o}").as_bytes())?;
        put(&mut header, 108, 7, b"0000000")?;
        put(&mut header, 116, 7, b"0000000")?;
        put(
            &mut header,
            124,
            11,
            format!("{:011o}", content.len()).as_bytes(),
        )
        .with_context(|| format!("{path} is too large for a tar"))?;
        put(&mut header, 136, 11, b"00000000000")?;
        // The sum is taken with blanks in its own place.
        put(&mut header, 148, 8, b"        ")?;
        put(&mut header, 156, 1, &[kind])?;
        put(&mut header, 157, 99, target.as_bytes())?;
        put(&mut header, 257, 8, b"ustar\x0000")?;
        let sum: u32 = header.iter().copied().map(u32::from).sum();
        put(&mut header, 148, 8, format!("{sum:06o}\0 ").as_bytes())?;
        self.bytes.extend_from_slice(&header);
        self.bytes.extend_from_slice(content);
        self.bytes
            .resize(self.bytes.len().next_multiple_of(BLOCK), 0);
        Ok(())
    }
}

impl Image<'_> {
    /// The image as `docker save` would write it. Names of the parts are their hashes.
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
        Ok(tar.finish())
    }
}

fn put(header: &mut [u8; BLOCK], at: usize, room: usize, value: &[u8]) -> Result<()> {
    let place = header
        .get_mut(at..at + room)
        .and_then(|field| field.get_mut(..value.len()));
    place
        .context("a field of a tar header is too long")?
        .copy_from_slice(value);
    Ok(())
}

fn sha256(bytes: &[u8]) -> String {
    let mut hex = String::new();
    for byte in digest(&SHA256, bytes).as_ref() {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// As container runtimes call this machine's.
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

    /// What the system's tar sees in it.
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
    fn other_tars_read_what_this_one_writes() {
        let mut tar = Tar::default();
        tar.folder("bin", 0o755).unwrap();
        tar.file("bin/tool", 0o755, &[7; 1000]).unwrap();
        tar.link("bin/sh", "tool").unwrap();
        tar.folder("tmp", 0o1777).unwrap();
        let bytes = tar.finish();
        assert_eq!(bytes.len() % BLOCK, 0);
        insta::assert_snapshot!(listed(&bytes), @r"
        drwxr-xr-x 0/0               0 1970-01-01 00:00 bin/
        -rwxr-xr-x 0/0            1000 1970-01-01 00:00 bin/tool
        lrwxrwxrwx 0/0               0 1970-01-01 00:00 bin/sh -> tool
        drwxrwxrwt 0/0               0 1970-01-01 00:00 tmp/
        ");
    }

    #[test]
    fn a_path_that_does_not_fit_is_refused() {
        let error = Tar::default()
            .file(&"a".repeat(100), 0o644, b"")
            .unwrap_err();
        assert!(error.to_string().contains("too long"));
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
