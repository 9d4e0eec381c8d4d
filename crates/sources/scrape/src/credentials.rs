//! How we identify ourselves to kubelets.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kubevitals_telemetry::Redacted;
use tokio::time::Instant;

use crate::error::ScrapeError;

/// A file is looked at this often: the kubelet that writes it renews a token long before it ends.
const REREAD_AFTER: Duration = Duration::from_secs(10);
/// No token is anywhere near as long; a file that is, is not one.
const MAX_BYTES: usize = 64 << 10;

/// How we identify ourselves to kubelets. A client certificate is part of the transport instead.
#[derive(Debug, Clone)]
pub enum Credentials {
    /// Not at all.
    None,
    /// By a bearer token.
    Token(Bearer),
    /// By the bearer token in a file, read again as the file changes.
    File(Arc<TokenFile>),
}

/// A bearer token that a header can carry. Nothing prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bearer(Redacted<Arc<str>>);

/// A bearer token in a file.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    token: Bearer,
    looked: Instant,
    is_unreadable: bool,
}

impl Credentials {
    /// A token from a file, which must be readable now. Called within a runtime.
    pub fn file(path: impl Into<PathBuf>) -> Result<Self, ScrapeError> {
        let path = path.into();
        let token = read(&path)?;
        Ok(Self::File(Arc::new(TokenFile {
            path,
            known: Mutex::new(Known {
                token,
                looked: Instant::now(),
                is_unreadable: false,
            }),
        })))
    }

    /// The token to send now, if there is one.
    pub(crate) fn token(&self) -> Option<Bearer> {
        match self {
            Self::None => None,
            Self::Token(token) => Some(token.clone()),
            Self::File(file) => Some(file.current(REREAD_AFTER)),
        }
    }

    /// Another token than the one that was just refused, if there is one by now.
    pub(crate) fn replacement(&self, refused: &Bearer) -> Option<Bearer> {
        match self {
            Self::None | Self::Token(_) => None,
            // Not at every refusal: thousands of kubelets may refuse within the same second.
            Self::File(file) => {
                Some(file.current(Duration::from_secs(1))).filter(|token| token != refused)
            }
        }
    }
}

impl Bearer {
    /// Checks a token.
    pub fn new(token: &str) -> Result<Self, ScrapeError> {
        Self::from_origin(token, || "the settings".to_owned())
    }

    fn from_origin(token: &str, origin: impl Fn() -> String) -> Result<Self, ScrapeError> {
        let token = token.trim();
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ScrapeError::TokenInvalid { origin: origin() });
        }
        Ok(Self(Redacted::new(token.into())))
    }

    pub(crate) fn expose(&self) -> &str {
        self.0.expose()
    }
}

impl TokenFile {
    /// The token, looked for again if the last look was so long ago. A file that cannot be read
    /// leaves the last token in use: it may serve for long yet.
    fn current(&self, reread_after: Duration) -> Bearer {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.looked.elapsed() >= reread_after {
            known.looked = Instant::now();
            match read(&self.path) {
                Ok(token) => {
                    known.token = token;
                    known.is_unreadable = false;
                }
                Err(error) => {
                    if !known.is_unreadable {
                        tracing::warn!(%error, "bearer token cannot be read again: the last one stays in use");
                    }
                    known.is_unreadable = true;
                }
            }
        }
        known.token.clone()
    }
}

fn read(path: &Path) -> Result<Bearer, ScrapeError> {
    use std::io::Read;
    let failed = |source| ScrapeError::TokenFile {
        path: path.to_owned(),
        source,
    };
    let mut text = String::new();
    // A few hundred bytes from memory: cheaper than to hand it to another thread.
    let file = std::fs::File::open(path).map_err(failed)?;
    let limit = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX);
    file.take(limit).read_to_string(&mut text).map_err(failed)?;
    Bearer::from_origin(&text, || path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_would_break_a_request_is_refused_and_never_printed() {
        for bad in ["", " \n", "a b", "a\r\nX: y", "ä"] {
            assert!(Bearer::new(bad).is_err(), "{bad:?}");
        }
        let good = Bearer::new("s3cret\n").unwrap();
        assert_eq!(good.expose(), "s3cret");
        assert!(!format!("{:?}", Credentials::Token(good)).contains("s3cret"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_is_read_again_and_a_broken_one_leaves_the_last_token() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        assert!(Credentials::file(&path).is_err());
        std::fs::write(&path, "one\n").unwrap();
        let credentials = Credentials::file(&path).unwrap();
        std::fs::write(&path, "two").unwrap();
        let now = || credentials.token().unwrap().expose().to_owned();
        assert_eq!(now(), "one");
        tokio::time::advance(REREAD_AFTER).await;
        assert_eq!(now(), "two");
        std::fs::write(&path, "").unwrap();
        tokio::time::advance(REREAD_AFTER).await;
        assert_eq!(now(), "two");
        std::fs::write(&path, "three").unwrap();
        let refused = Bearer::new("two").unwrap();
        assert_eq!(credentials.replacement(&refused), None);
        tokio::time::advance(Duration::from_secs(1)).await;
        let other = credentials.replacement(&refused).unwrap();
        assert_eq!(other.expose(), "three");
    }
}
