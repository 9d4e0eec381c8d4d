//! Credentials for kubelets.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kubevitals_telemetry::Redacted;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::config::ConfigError;
use crate::error::ScrapeError;
use crate::renewed_token::RenewedToken;

/// Interval at which a token file is read again. The kubelet renews a token long before it expires.
const REREAD_INTERVAL: Duration = Duration::from_secs(10);
/// Minimum interval between reads because of rejected tokens: thousands of kubelets may reject one
/// within the same second.
const MIN_REREAD_INTERVAL: Duration = Duration::from_secs(1);
/// No token is nearly as long.
const MAX_TOKEN_BYTES: usize = 64 << 10;

/// Credentials for kubelets. A client certificate is part of the transport instead.
#[derive(Debug, Clone)]
pub enum Credentials {
    None,
    Token(Bearer),
    /// The bearer token in a file, which is read again as it changes.
    File(Arc<TokenFile>),
    /// A bearer token that the API server issues.
    Renewed(Arc<RenewedToken>),
}

/// A bearer token that is valid in a header. It is never printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bearer(Redacted<Arc<str>>);

/// A bearer token in a file.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    cached: Mutex<CachedToken>,
}

#[derive(Debug)]
struct CachedToken {
    token: Bearer,
    read_at: Instant,
    is_unreadable: bool,
}

impl Credentials {
    /// Reads a token from a file. Must be called within a runtime.
    pub fn file(path: impl Into<PathBuf>) -> Result<Self, ConfigError> {
        let path = path.into();
        let token = read(&path)?;
        Ok(Self::File(Arc::new(TokenFile {
            path,
            cached: Mutex::new(CachedToken {
                token,
                read_at: Instant::now(),
                is_unreadable: false,
            }),
        })))
    }

    /// Returns the current token. Fails if there must be one and none is valid: a request without
    /// it could only be rejected.
    pub(crate) fn token(&self) -> Result<Option<Bearer>, ScrapeError> {
        Ok(Some(match self {
            Self::None => return Ok(None),
            Self::Token(token) => token.clone(),
            Self::File(file) => file.current(REREAD_INTERVAL),
            Self::Renewed(token) => token
                .current()
                .map_err(|reason| ScrapeError::NoToken { reason })?,
        }))
    }

    /// Returns a newer token than one that was rejected, if there is any.
    pub(crate) fn replacement(&self, rejected: &Bearer) -> Option<Bearer> {
        match self {
            Self::None | Self::Token(_) => None,
            Self::File(file) => {
                Some(file.current(MIN_REREAD_INTERVAL)).filter(|token| token != rejected)
            }
            Self::Renewed(token) => token.replacement(rejected),
        }
    }
}

impl Bearer {
    /// Validates a token.
    pub fn new(token: &str) -> Result<Self, ConfigError> {
        Self::from_origin(token, || "the configuration".to_owned())
    }

    fn from_origin(token: &str, origin: impl Fn() -> String) -> Result<Self, ConfigError> {
        let token = token.trim();
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ConfigError::InvalidToken { origin: origin() });
        }
        Ok(Self(Redacted::new(token.into())))
    }

    pub(crate) fn expose(&self) -> &str {
        self.0.expose()
    }
}

impl TokenFile {
    /// Returns the token, read again if the last read is older than `max_age`. If the file cannot
    /// be read, the last token stays in use: it may still be valid for long.
    fn current(&self, max_age: Duration) -> Bearer {
        let mut cached = self.cached.lock();
        if cached.read_at.elapsed() >= max_age {
            cached.read_at = Instant::now();
            match read(&self.path) {
                Ok(token) => {
                    if cached.is_unreadable {
                        tracing::info!(path = %self.path.display(), "bearer token is readable again");
                    }
                    cached.token = token;
                    cached.is_unreadable = false;
                }
                Err(error) => {
                    if !cached.is_unreadable {
                        tracing::warn!(%error, "failed to read bearer token, keeping the previous one");
                    }
                    cached.is_unreadable = true;
                }
            }
        }
        cached.token.clone()
    }
}

fn read(path: &Path) -> Result<Bearer, ConfigError> {
    use std::io::Read;
    let failed = |source| ConfigError::TokenFile {
        path: path.to_owned(),
        source,
    };
    let mut text = String::new();
    // A few hundred bytes from the page cache: cheaper than a blocking task.
    let file = std::fs::File::open(path).map_err(failed)?;
    let limit = u64::try_from(MAX_TOKEN_BYTES).unwrap_or(u64::MAX);
    file.take(limit).read_to_string(&mut text).map_err(failed)?;
    Bearer::from_origin(&text, || path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_would_break_a_request_is_rejected_and_never_printed() {
        for bad in ["", " \n", "a b", "a\r\nX: y", "ä"] {
            assert!(Bearer::new(bad).is_err(), "{bad:?}");
        }
        let good = Bearer::new("s3cret\n").unwrap();
        assert_eq!(good.expose(), "s3cret");
        assert!(!format!("{:?}", Credentials::Token(good)).contains("s3cret"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_is_read_again_and_an_invalid_one_keeps_the_last_token() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        assert!(Credentials::file(&path).is_err());
        std::fs::write(&path, "one\n").unwrap();
        let credentials = Credentials::file(&path).unwrap();
        std::fs::write(&path, "two").unwrap();
        let now = || credentials.token().unwrap().unwrap().expose().to_owned();
        assert_eq!(now(), "one");
        tokio::time::advance(REREAD_INTERVAL).await;
        assert_eq!(now(), "two");
        std::fs::write(&path, "").unwrap();
        tokio::time::advance(REREAD_INTERVAL).await;
        assert_eq!(now(), "two");
        std::fs::remove_file(&path).unwrap();
        tokio::time::advance(REREAD_INTERVAL).await;
        assert_eq!(now(), "two");
        // As the kubelet replaces a projected token: by a rename.
        let renamed = folder.path().join("new");
        std::fs::write(&renamed, "three").unwrap();
        std::fs::rename(&renamed, &path).unwrap();
        let rejected = Bearer::new("two").unwrap();
        assert_eq!(credentials.replacement(&rejected), None);
        tokio::time::advance(Duration::from_secs(1)).await;
        let other = credentials.replacement(&rejected).unwrap();
        assert_eq!(other.expose(), "three");
    }
}
