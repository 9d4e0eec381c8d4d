//! Errors of tests.

use std::path::PathBuf;
use std::time::Duration;

use kubevitals_tls::TlsError;

/// An error between a test and its cluster.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum E2eError {
    /// The test was started without a cluster.
    #[error(
        "{variable} is not set: these tests need a real cluster, run them with `cargo xtask e2e`"
    )]
    NoCluster {
        /// The variable that names the cluster.
        variable: &'static str,
    },
    /// The description of the cluster cannot be read.
    #[error("cannot read the description of the cluster in {}", path.display())]
    Description {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The description of the cluster is invalid.
    #[error("the description of the cluster in {} is invalid", path.display())]
    DescriptionFormat {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// The cluster's kubeconfig cannot be used.
    #[error("cannot use the kubeconfig {}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A request to the API server failed.
    #[error("{doing} failed")]
    Api {
        /// The request: `listing pods`.
        doing: String,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
    /// A manifest lacks a required field.
    #[error("the manifest has no {missing}: {manifest}")]
    Manifest {
        /// The missing field.
        missing: &'static str,
        /// The manifest, cut.
        manifest: String,
    },
    /// A manifest of `deploy/` cannot be read.
    #[error("cannot read {}: {reason}", path.display())]
    ManifestFile {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// A text is not YAML.
    #[error("not YAML: {0}")]
    Yaml(String),
    /// The wait for a state of an object took too long.
    #[error("{what} was not as expected after {waited:?}; last seen: {last_seen}")]
    Deadline {
        /// The object.
        what: String,
        /// The timeout.
        waited: Duration,
        /// The last observed state, cut.
        last_seen: String,
    },
    /// A program was not fetched for this run.
    #[error("there is no {name}: neither the cluster's description nor {variable} has its path")]
    NoProgram {
        /// The name of the program.
        name: String,
        /// The variable that would name it.
        variable: String,
    },
    /// A program could not be run.
    #[error("cannot run {program}")]
    Program {
        /// The name of the program.
        program: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A program failed.
    #[error("{command} ended with {status}: {stderr}")]
    Failed {
        /// The program and its arguments.
        command: String,
        /// Its exit status.
        status: String,
        /// Its standard error, cut.
        stderr: String,
    },
    /// A peer could not be reached over TLS.
    #[error("GET {url} failed: {reason}")]
    Get {
        /// The requested URL.
        url: String,
        /// The error, with all its causes.
        reason: String,
    },
    /// A TLS configuration could not be built.
    #[error("cannot set up TLS")]
    Tls(#[from] TlsError),
    /// A certificate could not be created.
    #[error("cannot create a certificate")]
    Certificate(#[from] rcgen::Error),
    /// A file of a test could not be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A body of metrics is invalid.
    #[error("the metrics of the kubelet cannot be read: {first}")]
    Metrics {
        /// The first problem.
        first: String,
    },
}

impl E2eError {
    /// Names the request to the API server; for `map_err`.
    pub(crate) fn api(doing: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Api {
            doing,
            source: Box::new(source),
        }
    }
}

/// Returns the last lines of a text.
pub(crate) fn tail(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let start = text.ceil_char_boundary(text.len() - max_bytes);
    let kept = text.get(start..).unwrap_or_default();
    // Without the line that was cut.
    let kept = kept.split_once('\n').map_or(kept, |(_, whole)| whole);
    format!("… ({} bytes before)\n{kept}", text.len() - kept.len())
}

/// Returns the beginning of a text.
pub(crate) fn head(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(max_bytes);
    let kept = text.get(..end).unwrap_or_default();
    format!("{kept} … ({} bytes more)", text.len() - kept.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_keeps_the_last_whole_lines() {
        assert_eq!(tail("one\ntwo\n", 100), "one\ntwo\n");
        assert_eq!(tail("one\ntwo\nthree\n", 10), "… (8 bytes before)\nthree\n");
        assert_eq!(tail("ééééé", 3), "… (8 bytes before)\né");
    }

    #[test]
    fn a_head_keeps_whole_characters() {
        assert_eq!(head("short", 5), "short");
        assert_eq!(head("ééé", 3), "é … (4 bytes more)");
    }
}
