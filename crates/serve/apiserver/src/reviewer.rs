//! Reviews by the cluster's API server: tokens, access, and the authentication configuration.

mod kube;
mod retry;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use kubevitals_telemetry::RequestFailure;

pub use self::kube::KubeReviewer;
pub(crate) use self::kube::classify;

/// The future of a review.
pub type ReviewFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, ReviewError>> + Send + 'a>>;

/// Reviews tokens and access. [`KubeReviewer`] sends reviews to the cluster; tests and other
/// projects have their own.
///
/// Every call is one review: the kit caches results and coalesces equal reviews itself.
pub trait Reviewer: Send + Sync + 'static {
    /// Authenticates a token. `Ok` is cached, so a review that did not take place must be an error.
    fn review_token<'a>(&'a self, token: &'a BearerToken) -> ReviewFuture<'a, TokenReviewResult>;

    /// Authorizes a request.
    fn review_access<'a>(&'a self, review: &'a AccessReview) -> ReviewFuture<'a, AccessDecision>;
}

/// Reads the data of the ConfigMap `kube-system/extension-apiserver-authentication`.
pub trait AuthenticationSource: Send + Sync + 'static {
    /// Returns its current data; `None` if the ConfigMap does not exist.
    fn authentication(&self) -> ReviewFuture<'_, Option<BTreeMap<String, String>>>;
}

/// A bearer token of a client. It appears in no log and no error.
pub struct BearerToken(String);

/// The result of a token review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenReviewResult {
    Valid(UserInfo),
    Invalid,
    /// Not authenticated, with an error of the authenticator. The request is rejected, but the
    /// result is not cached: the error may pass.
    Failed,
}

/// The result of an access review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessDecision {
    pub allowed: bool,
    /// The reason of the authorizer; may be empty.
    pub reason: String,
}

/// A user, as in `authentication.k8s.io`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct UserInfo {
    pub name: String,
    /// Often empty.
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

/// A request to authorize.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AccessReview {
    pub user: UserInfo,
    pub attributes: Attributes,
}

/// The attributes of a request, as in `authorization.k8s.io`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Attributes {
    Resource {
        /// `get`, `list`, `watch`, …
        verb: String,
        /// Empty for the core group.
        group: String,
        /// Such as `v1`.
        version: String,
        /// The plural.
        resource: String,
        /// Often empty.
        subresource: String,
        /// Empty for all namespaces and for cluster-scoped resources.
        namespace: String,
        /// Empty for lists.
        name: String,
        /// The requirements of `fieldSelector` and `labelSelector`, of lists and watches. All must
        /// hold.
        field_selector: Vec<SelectorRequirement>,
        label_selector: Vec<SelectorRequirement>,
    },
    Path {
        /// The method in lower case.
        verb: String,
        path: String,
    },
}

/// A requirement of a selector, as in `authorization.k8s.io`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SelectorRequirement {
    pub key: String,
    pub operator: SelectorOperator,
    /// Empty for `Exists` and `DoesNotExist`.
    pub values: Vec<String>,
}

/// The operator of a [`SelectorRequirement`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SelectorOperator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl SelectorOperator {
    /// The name of the operator in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
            Self::DoesNotExist => "DoesNotExist",
        }
    }
}

/// A review that failed. It is displayed with all causes on one line.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{operation}: {}", chain(source))]
pub struct ReviewError {
    /// The operation that failed, such as `cannot create subjectaccessreviews`.
    pub operation: &'static str,
    /// Shared, since the callers of a coalesced review all get the error.
    pub source: Arc<dyn Error + Send + Sync>,
}

/// A request without a response in time.
#[derive(Debug, thiserror::Error)]
#[error("no response within {0:?}")]
pub(crate) struct NoResponse(pub(crate) Duration);

impl ReviewError {
    /// An error of `operation` with its cause.
    pub fn new(operation: &'static str, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            operation,
            source: Arc::from(source.into()),
        }
    }

    pub(crate) fn failure(&self) -> RequestFailure {
        match self.source.downcast_ref::<::kube::Error>() {
            Some(error) => classify(error),
            None if self.is_timeout() => RequestFailure::Unavailable,
            None => RequestFailure::Other,
        }
    }

    pub(crate) fn is_timeout(&self) -> bool {
        self.source.is::<NoResponse>()
    }
}

impl BearerToken {
    pub fn new(token: impl Into<String>) -> Self {
        Self(token.into())
    }

    /// Returns the token itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken(…)")
    }
}

/// An error with all causes on one line: kube's own messages omit them.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        cause = error.source();
    }
    text
}
