//! Errors of the runtime.

use std::io;
use std::path::{Path, PathBuf};

use kubevitals_virtual_node::RuntimeError;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// A file or a folder of ours cannot be used.
    #[error("{action} {}: {source}", path.display())]
    File {
        /// What was tried, as a verb.
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A record of an earlier process cannot be read.
    #[error("decode {}: {source}", path.display())]
    Record {
        path: PathBuf,
        source: serde_json::Error,
    },
    /// The shim of a container does not start or does not respond.
    #[error("shim of container {container}: {message}")]
    Shim { container: String, message: String },
    /// The environment of a container cannot be built yet: `CreateContainerConfigError`.
    #[error("{0}")]
    Config(String),
    /// A volume cannot be set up yet: `FailedMount`.
    #[error("MountVolume.SetUp failed for volume {volume:?} : {message}")]
    Volume { volume: String, message: String },
    /// The API server cannot be asked.
    #[error(transparent)]
    Inputs(#[from] RuntimeError),
}

impl ProcessError {
    /// A closure for `map_err` on file operations.
    pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File {
            action,
            path,
            source,
        }
    }
}

impl From<ProcessError> for RuntimeError {
    fn from(error: ProcessError) -> Self {
        Self::Failed {
            context: "process runtime".to_owned(),
            source: Box::new(error),
        }
    }
}
