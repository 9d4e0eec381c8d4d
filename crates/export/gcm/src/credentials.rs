//! Credentials: from a file or from the metadata server.

mod file;
mod token;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

pub(crate) use token::{TokenError, TokenSource};

use file::{AuthorizedUser, ExternalAccount, ServiceAccount};

/// Maximum size of a file of credentials or of a token.
const MAX_FILE: u64 = 64 << 10;

/// Who this program is to Google Cloud. Nothing of it is printed.
#[derive(Clone)]
pub enum Credentials {
    /// The default service account of the machine, or of the pod.
    Metadata,
    /// None at all, for endpoints that ask for none.
    Anonymous,
    /// What a file says.
    File(Box<FileCredentials>),
}

/// The credentials of a file.
#[derive(Clone)]
pub struct FileCredentials {
    pub(crate) kind: FileKind,
    project: Option<String>,
    /// The project whose quota calls count against.
    quota_project: Option<String>,
}

#[derive(Clone)]
pub(crate) enum FileKind {
    ServiceAccount(ServiceAccount),
    AuthorizedUser(AuthorizedUser),
    ExternalAccount(ExternalAccount),
}

/// Credentials that cannot be used. Nothing of the file is repeated but its type.
#[derive(Debug, Error)]
pub enum CredentialsError {
    #[error("failed to read {path}: {source}")]
    Read { path: String, source: io::Error },
    #[error("{path} has no credentials: {problem}")]
    Invalid { path: String, problem: String },
}

impl Credentials {
    /// Finds the default credentials, as Google's libraries do: the file that
    /// `GOOGLE_APPLICATION_CREDENTIALS` names, the file that `gcloud` writes, or the metadata
    /// server. `get` returns variables.
    pub fn find(get: impl Fn(&str) -> Option<String>) -> Result<Self, CredentialsError> {
        let get = |name| get(name).filter(|value| !value.is_empty());
        if let Some(path) = get("GOOGLE_APPLICATION_CREDENTIALS") {
            return Self::read(Path::new(&path));
        }
        let folder = get("CLOUDSDK_CONFIG").map(PathBuf::from);
        let folder = folder.or_else(|| Some(Path::new(&get("HOME")?).join(".config/gcloud")));
        let path = folder.map(|folder| folder.join("application_default_credentials.json"));
        match path.filter(|path| path.is_file()) {
            Some(path) => Self::read(&path),
            None => Ok(Self::Metadata),
        }
    }

    /// Reads a file of credentials.
    pub fn read(path: &Path) -> Result<Self, CredentialsError> {
        let name = path.display().to_string();
        let bytes = read_limited(path).map_err(|source| CredentialsError::Read {
            path: name.clone(),
            source,
        })?;
        Self::parse(&bytes).map_err(|problem| CredentialsError::Invalid {
            path: name,
            problem,
        })
    }

    /// Parses the JSON of a file; the error says what is wrong without repeating it.
    pub fn parse(json: &[u8]) -> Result<Self, String> {
        Ok(Self::File(Box::new(file::parse(json)?)))
    }

    /// The project that the file names.
    pub fn project(&self) -> Option<&str> {
        match self {
            Self::File(file) => file.project.as_deref().or(self.quota_project()),
            Self::Metadata | Self::Anonymous => None,
        }
    }

    /// The project whose quota calls count against, if it is not the one that is written to.
    pub(crate) fn quota_project(&self) -> Option<&str> {
        match self {
            Self::File(file) => file.quota_project.as_deref(),
            Self::Metadata | Self::Anonymous => None,
        }
    }

    /// Whether tokens are asked for over TLS.
    pub(crate) fn needs_tls(&self) -> bool {
        match self {
            Self::File(file) => file.kind.needs_tls(),
            Self::Metadata | Self::Anonymous => false,
        }
    }
}

/// The kind alone.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Metadata => "Metadata",
            Self::Anonymous => "Anonymous",
            Self::File(file) => file.name(),
        })
    }
}

impl fmt::Debug for FileCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FileCredentials {
    fn name(&self) -> &'static str {
        match self.kind {
            FileKind::ServiceAccount(_) => "ServiceAccount",
            FileKind::AuthorizedUser(_) => "AuthorizedUser",
            FileKind::ExternalAccount(_) => "ExternalAccount",
        }
    }
}

pub(crate) fn read_limited(path: &Path) -> io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path)?;
    file.take(MAX_FILE).read_to_end(&mut bytes)?;
    Ok(bytes)
}
