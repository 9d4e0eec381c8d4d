//! Files in tar archives and folders. Times and owners are zero: the same files give the same
//! bytes.

use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

/// Files to write as an archive or a folder, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    entries: Vec<Entry>,
}

/// A file, folder or symbolic link.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    /// Without a slash at either end.
    path: String,
    mode: u32,
    content: Content,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    Folder,
    File(Vec<u8>),
    Link(String),
}

impl Files {
    pub fn folder(&mut self, path: &str, mode: u32) {
        self.add(path, mode, Content::Folder);
    }

    pub fn file(&mut self, path: &str, mode: u32, content: impl Into<Vec<u8>>) {
        self.add(path, mode, Content::File(content.into()));
    }

    pub fn link(&mut self, path: &str, target: &str) {
        self.add(path, 0o777, Content::Link(target.to_owned()));
    }

    /// The paths, in order.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.path.as_str())
    }

    /// The target of a link.
    pub fn target_of(&self, path: &str) -> Option<&str> {
        let entry = self.entries.iter().find(|entry| entry.path == path)?;
        match &entry.content {
            Content::Link(target) => Some(target),
            Content::Folder | Content::File(_) => None,
        }
    }

    /// Returns the files as a tar archive.
    pub fn tar(&self) -> Result<Vec<u8>> {
        let mut tar = Builder::new(Vec::new());
        for entry in &self.entries {
            let mut header = header(entry.mode);
            match &entry.content {
                Content::Folder => {
                    header.set_entry_type(EntryType::Directory);
                    let path = format!("{}/", entry.path);
                    tar.append_data(&mut header, path, io::empty())?;
                }
                Content::File(content) => {
                    header.set_entry_type(EntryType::Regular);
                    header.set_size(u64::try_from(content.len())?);
                    tar.append_data(&mut header, &entry.path, content.as_slice())?;
                }
                Content::Link(target) => {
                    header.set_entry_type(EntryType::Symlink);
                    tar.append_link(&mut header, &entry.path, target)?;
                }
            }
        }
        Ok(tar.into_inner()?)
    }

    /// Writes the files into a folder, which is created.
    pub fn write_to(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        for entry in &self.entries {
            let path = folder.join(&entry.path);
            let written = match &entry.content {
                Content::Folder => std::fs::create_dir_all(&path),
                Content::File(content) => std::fs::write(&path, content),
                Content::Link(target) => symlink(target, &path),
            };
            let permitted = written.and_then(|()| match entry.content {
                Content::Link(_) => Ok(()),
                Content::Folder | Content::File(_) => {
                    std::fs::set_permissions(&path, PermissionsExt::from_mode(entry.mode))
                }
            });
            permitted.with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    fn add(&mut self, path: &str, mode: u32, content: Content) {
        self.entries.push(Entry {
            path: path.to_owned(),
            mode,
            content,
        });
    }
}

/// Compresses with gzip. The header has neither a time nor a name.
pub fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    // The operating system is written as unknown on every machine.
    let builder = GzBuilder::new().mtime(0).operating_system(255);
    let mut encoder = builder.write(Vec::new(), Compression::default());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

/// Returns the SHA-256 digest in hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut hex = String::new();
    for byte in Sha256::digest(bytes) {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

fn header(mode: u32) -> Header {
    let mut header = Header::new_ustar();
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(0);
    header
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn sample() -> Files {
        let mut files = Files::default();
        files.folder("bin", 0o755);
        files.file("bin/tool", 0o755, [7; 1000]);
        files.link("bin/sh", "tool");
        files.folder("tmp", 0o1777);
        files
    }

    #[test]
    fn the_tar_of_the_system_reads_the_archive() {
        let mut tar = Command::new("tar")
            .args([
                "--list",
                "--verbose",
                "--numeric-owner",
                "--utc",
                "--gzip",
                "--file=-",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let bytes = gzip(&sample().tar().unwrap()).unwrap();
        tar.stdin.take().unwrap().write_all(&bytes).unwrap();
        let output = tar.wait_with_output().unwrap();
        assert!(output.status.success());
        insta::assert_snapshot!(String::from_utf8(output.stdout).unwrap(), @r"
        drwxr-xr-x 0/0               0 1970-01-01 00:00 bin/
        -rwxr-xr-x 0/0            1000 1970-01-01 00:00 bin/tool
        lrwxrwxrwx 0/0               0 1970-01-01 00:00 bin/sh -> tool
        drwxrwxrwt 0/0               0 1970-01-01 00:00 tmp/
        ");
    }

    #[test]
    fn a_folder_has_the_same_files_as_the_archive() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        sample().write_to(&root).unwrap();
        let mode = |path: &str| {
            let metadata = std::fs::symlink_metadata(root.join(path)).unwrap();
            metadata.permissions().mode() & 0o7777
        };
        assert_eq!(mode("bin/tool"), 0o755);
        assert_eq!(mode("tmp"), 0o1777);
        assert_eq!(
            std::fs::read_link(root.join("bin/sh")).unwrap(),
            Path::new("tool")
        );
        assert_eq!(std::fs::read(root.join("bin/tool")).unwrap(), [7; 1000]);
    }

    #[test]
    fn the_header_of_gzip_has_neither_a_time_nor_a_system() {
        let bytes = gzip(b"text").unwrap();
        assert_eq!(bytes[..4], [0x1f, 0x8b, 8, 0]);
        assert_eq!(bytes[4..8], [0; 4]);
        assert_eq!(bytes[9], 255);
    }

    #[test]
    fn digests_are_those_of_the_standard() {
        assert_eq!(
            sha256(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
