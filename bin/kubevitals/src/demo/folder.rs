//! The temporary folder of the demo.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A folder that only its owner can read. It is removed when this is dropped.
#[derive(Debug)]
pub(super) struct DemoFolder {
    path: PathBuf,
}

impl DemoFolder {
    /// Creates a folder that did not exist before, so that no other user has prepared it.
    pub(super) fn create() -> io::Result<Self> {
        let base = std::env::temp_dir();
        let process = std::process::id();
        for attempt in 0..1_000 {
            let path = base.join(format!("kubevitals-demo-{process}-{attempt}"));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { path }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let file = self.path.join(name);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(file)?;
        file.write_all(text.as_bytes())
    }
}

impl Drop for DemoFolder {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = fs::remove_dir_all(&self.path);
    }
}
