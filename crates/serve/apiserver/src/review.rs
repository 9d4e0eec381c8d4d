//! Questions that the cluster's API server answers: who holds a token, who may do what, whom to
//! trust.

mod kube_reviewer;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;

pub use self::kube_reviewer::KubeReviewer;

/// An answer that is on its way.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, ReviewError>> + Send + 'a>>;

/// Answers who holds a token and who may do what. [`KubeReviewer`] asks the cluster; tests and
/// other projects have their own.
///
/// Every call is one question: the kit remembers answers, and joins equal questions, itself.
pub trait Reviewer: Send + Sync + 'static {
    /// Whose token it is. An answer other than `Err` is remembered, so that a failure to find out
    /// must be an error.
    fn review_token<'a>(&'a self, token: &'a BearerToken) -> Pending<'a, TokenVerdict>;

    /// Whether a user may do something.
    fn review_access<'a>(&'a self, question: &'a AccessQuestion) -> Pending<'a, AccessVerdict>;
}

/// Gives the data of the ConfigMap `kube-system/extension-apiserver-authentication`.
pub trait AuthenticationSource: Send + Sync + 'static {
    /// What it holds now; `None` if there is no such ConfigMap.
    fn authentication(&self) -> Pending<'_, Option<BTreeMap<String, String>>>;
}

/// A token that a client sent. It is shown in no log and no error.
pub struct BearerToken(String);

/// Whose token it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenVerdict {
    /// This user's.
    Valid(UserInfo),
    /// Nobody's.
    Invalid,
}

/// Whether somebody may do something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessVerdict {
    /// Whether.
    pub allowed: bool,
    /// Why, as the authorizer says; may be empty.
    pub reason: String,
}

/// Somebody.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct UserInfo {
    /// The name.
    pub name: String,
    /// What tells namesakes apart; mostly empty.
    pub uid: String,
    /// The groups, in the order in which they were told.
    pub groups: Vec<String>,
    /// What else was told.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// A question for access.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AccessQuestion {
    /// Who wants it.
    pub user: UserInfo,
    /// What.
    pub attempt: Attempt,
}

/// What somebody wants to do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Attempt {
    /// Something with a resource.
    Resource {
        /// `get`, `list`, `watch`, …
        verb: String,
        /// Empty for the core group.
        group: String,
        /// Such as `v1`.
        version: String,
        /// The plural.
        resource: String,
        /// Mostly empty.
        subresource: String,
        /// Empty for all, and for resources without.
        namespace: String,
        /// Empty for many.
        name: String,
    },
    /// Something with a path.
    Path {
        /// The method in lower case.
        verb: String,
        /// The path.
        path: String,
    },
}

/// Why there is no answer.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{what}: {problem}")]
pub struct ReviewError {
    /// What was asked, such as `cannot create subjectaccessreviews`.
    pub what: &'static str,
    /// What went wrong, with all causes.
    pub problem: String,
}

impl BearerToken {
    /// Takes a token.
    pub fn new(token: impl Into<String>) -> Self {
        Self(token.into())
    }

    /// The token itself, for whoever sends it on.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken(…)")
    }
}
