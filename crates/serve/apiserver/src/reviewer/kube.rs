//! Reviews by the cluster's own API server.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Request;
use kubevitals_model::Rng;
use kubevitals_telemetry::RequestFailure;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::retry::{Waits, is_transient};
use super::{
    AccessDecision, AccessReview, Attributes, AuthenticationSource, BearerToken, NoResponse,
    ReviewError, ReviewFuture, Reviewer, SelectorRequirement, TokenReviewResult, UserInfo,
};

const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const CONFIG_MAP: &str =
    "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

/// Sends reviews to the API server of a client.
///
/// The client's user needs `create` on `tokenreviews.authentication.k8s.io` and
/// `subjectaccessreviews.authorization.k8s.io` (the `ClusterRole` `system:auth-delegator`), and
/// `get` on the ConfigMap `kube-system/extension-apiserver-authentication` (the Role
/// `extension-apiserver-authentication-reader` there).
#[derive(Clone)]
pub struct KubeReviewer {
    client: kube::Client,
    timeout: Duration,
}

#[derive(Deserialize)]
struct Review<S> {
    #[serde(default = "Option::default")]
    status: Option<S>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct TokenStatus {
    authenticated: bool,
    user: User,
    error: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct User {
    username: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct AccessStatus {
    allowed: bool,
    denied: bool,
    reason: String,
    evaluation_error: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ConfigMap {
    data: BTreeMap<String, String>,
}

impl KubeReviewer {
    /// Sends reviews through `client`, with a timeout of ten seconds.
    pub fn new(client: kube::Client) -> Self {
        Self {
            client,
            timeout: Duration::from_secs(10),
        }
    }

    /// Sets the timeout of a review, with its retries.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    async fn create<S>(
        &self,
        operation: &'static str,
        path: &str,
        body: &impl Serialize,
    ) -> Result<S, ReviewError>
    where
        S: for<'de> Deserialize<'de>,
    {
        let body = serde_json::to_vec(body).map_err(|error| ReviewError::new(operation, error))?;
        let request = || {
            Request::post(path)
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(body.clone())
                .map_err(|error| ReviewError::new(operation, error))
        };
        let deadline = tokio::time::Instant::now() + self.timeout;
        let mut waits = Waits::new(Rng::random());
        loop {
            let error = match self
                .send::<Review<S>>(operation, request()?, deadline)
                .await?
            {
                Ok(review) => {
                    return review
                        .status
                        .ok_or_else(|| ReviewError::new(operation, "the response has no status"));
                }
                Err(error) => error,
            };
            match waits.next().filter(|_| is_transient(&error)) {
                Some(wait) if tokio::time::Instant::now() + wait < deadline => {
                    tracing::debug!(operation, %error, ?wait, "retrying a review");
                    tokio::time::sleep(wait).await;
                }
                _ => return Err(ReviewError::new(operation, error)),
            }
        }
    }

    /// Sends a request; the outer error is the timeout.
    async fn send<T>(
        &self,
        operation: &'static str,
        request: Request<Vec<u8>>,
        deadline: tokio::time::Instant,
    ) -> Result<Result<T, kube::Error>, ReviewError>
    where
        T: for<'de> Deserialize<'de>,
    {
        tokio::time::timeout_at(deadline, self.client.request::<T>(request))
            .await
            .map_err(|_elapsed| ReviewError::new(operation, NoResponse(self.timeout)))
    }
}

impl Reviewer for KubeReviewer {
    fn review_token<'a>(&'a self, token: &'a BearerToken) -> ReviewFuture<'a, TokenReviewResult> {
        const OPERATION: &str = "cannot create tokenreviews.authentication.k8s.io";
        Box::pin(async move {
            let review = json!({
                "kind": "TokenReview",
                "apiVersion": "authentication.k8s.io/v1",
                "spec": {"token": token.expose()},
            });
            let status: TokenStatus = self.create(OPERATION, TOKEN_REVIEWS, &review).await?;
            if status.authenticated {
                return Ok(TokenReviewResult::Valid(status.user.into()));
            }
            if status.error.is_empty() {
                return Ok(TokenReviewResult::Invalid);
            }
            tracing::debug!(reason = %status.error, "token rejected");
            Ok(TokenReviewResult::Failed)
        })
    }

    fn review_access<'a>(&'a self, review: &'a AccessReview) -> ReviewFuture<'a, AccessDecision> {
        const OPERATION: &str = "cannot create subjectaccessreviews.authorization.k8s.io";
        Box::pin(async move {
            let review = access_review(review);
            let status: AccessStatus = self.create(OPERATION, ACCESS_REVIEWS, &review).await?;
            if !status.allowed && !status.denied && !status.evaluation_error.is_empty() {
                tracing::debug!(error = %status.evaluation_error, "access review inconclusive");
            }
            Ok(AccessDecision {
                allowed: status.allowed && !status.denied,
                reason: status.reason,
            })
        })
    }
}

impl AuthenticationSource for KubeReviewer {
    fn authentication(&self) -> ReviewFuture<'_, Option<BTreeMap<String, String>>> {
        const OPERATION: &str =
            "cannot get configmap kube-system/extension-apiserver-authentication";
        Box::pin(async move {
            let request = Request::get(CONFIG_MAP)
                .body(Vec::new())
                .map_err(|error| ReviewError::new(OPERATION, error))?;
            let deadline = tokio::time::Instant::now() + self.timeout;
            match self.send::<ConfigMap>(OPERATION, request, deadline).await? {
                Ok(map) => Ok(Some(map.data)),
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
                Err(error) => Err(ReviewError::new(OPERATION, error)),
            }
        })
    }
}

impl From<User> for UserInfo {
    fn from(user: User) -> Self {
        Self {
            name: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra,
        }
    }
}

/// Whether the server itself is away, or only this request has failed.
pub(crate) fn classify(error: &kube::Error) -> RequestFailure {
    match error {
        kube::Error::Api(status) => RequestFailure::of_status(status.code),
        kube::Error::Service(_) | kube::Error::HyperError(_) => RequestFailure::Unavailable,
        _ => RequestFailure::Other,
    }
}

fn access_review(review: &AccessReview) -> serde_json::Value {
    let user = &review.user;
    let mut spec = json!({"user": user.name});
    if let Some(spec) = spec.as_object_mut() {
        if !user.uid.is_empty() {
            spec.insert(String::from("uid"), json!(user.uid));
        }
        if !user.groups.is_empty() {
            spec.insert(String::from("groups"), json!(user.groups));
        }
        if !user.extra.is_empty() {
            spec.insert(String::from("extra"), json!(user.extra));
        }
        match &review.attributes {
            Attributes::Resource {
                verb,
                group,
                version,
                resource,
                subresource,
                namespace,
                name,
                field_selector,
                label_selector,
            } => {
                let mut attributes = serde_json::Map::new();
                for (key, value) in [
                    ("verb", verb),
                    ("group", group),
                    ("version", version),
                    ("resource", resource),
                    ("subresource", subresource),
                    ("namespace", namespace),
                    ("name", name),
                ] {
                    if !value.is_empty() {
                        attributes.insert(key.to_owned(), json!(value));
                    }
                }
                for (key, selector) in [
                    ("fieldSelector", field_selector),
                    ("labelSelector", label_selector),
                ] {
                    if !selector.is_empty() {
                        let requirements: Vec<_> = selector.iter().map(requirement).collect();
                        let selector = json!({"requirements": requirements});
                        attributes.insert(key.to_owned(), selector);
                    }
                }
                spec.insert(String::from("resourceAttributes"), attributes.into());
            }
            Attributes::Path { verb, path } => {
                let attributes = json!({"verb": verb, "path": path});
                spec.insert(String::from("nonResourceAttributes"), attributes);
            }
        }
    }
    json!({
        "kind": "SubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "spec": spec,
    })
}

fn requirement(of: &SelectorRequirement) -> serde_json::Value {
    let mut requirement = json!({"key": of.key, "operator": of.operator.name()});
    if !of.values.is_empty()
        && let Some(requirement) = requirement.as_object_mut()
    {
        requirement.insert(String::from("values"), json!(of.values));
    }
    requirement
}
