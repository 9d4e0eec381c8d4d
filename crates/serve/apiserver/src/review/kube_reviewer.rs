//! Reviews by the cluster's own API server.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Request;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    AccessQuestion, AccessVerdict, Attempt, AuthenticationSource, BearerToken, Pending,
    ReviewError, Reviewer, TokenVerdict, UserInfo,
};

const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const CONFIG_MAP: &str =
    "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

/// Asks the API server of a client.
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
    /// Asks through `client`, and waits ten seconds at most for each answer.
    pub fn new(client: kube::Client) -> Self {
        Self {
            client,
            timeout: Duration::from_secs(10),
        }
    }

    /// Waits no longer than this for an answer.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    async fn create<S>(
        &self,
        what: &'static str,
        path: &str,
        body: &impl Serialize,
    ) -> Result<S, ReviewError>
    where
        S: for<'de> Deserialize<'de>,
    {
        let failed = |problem: String| ReviewError { what, problem };
        let body = serde_json::to_vec(body).map_err(|error| failed(error.to_string()))?;
        let request = Request::post(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body)
            .map_err(|error| failed(error.to_string()))?;
        let answer = tokio::time::timeout(self.timeout, self.client.request::<Review<S>>(request));
        match answer.await {
            Ok(Ok(Review {
                status: Some(status),
            })) => Ok(status),
            Ok(Ok(Review { status: None })) => {
                Err(failed(String::from("the answer has no status")))
            }
            Ok(Err(error)) => Err(failed(chain(&error))),
            Err(_elapsed) => Err(failed(format!("no answer within {:?}", self.timeout))),
        }
    }
}

impl Reviewer for KubeReviewer {
    fn review_token<'a>(&'a self, token: &'a BearerToken) -> Pending<'a, TokenVerdict> {
        const WHAT: &str = "cannot create tokenreviews.authentication.k8s.io";
        Box::pin(async move {
            let review = json!({
                "kind": "TokenReview",
                "apiVersion": "authentication.k8s.io/v1",
                "spec": {"token": token.expose()},
            });
            let status: TokenStatus = self.create(WHAT, TOKEN_REVIEWS, &review).await?;
            if status.authenticated {
                return Ok(TokenVerdict::Valid(status.user.into()));
            }
            if !status.error.is_empty() {
                tracing::debug!(reason = %status.error, "a token was not accepted");
            }
            Ok(TokenVerdict::Invalid)
        })
    }

    fn review_access<'a>(&'a self, question: &'a AccessQuestion) -> Pending<'a, AccessVerdict> {
        const WHAT: &str = "cannot create subjectaccessreviews.authorization.k8s.io";
        Box::pin(async move {
            let review = access_review(question);
            let status: AccessStatus = self.create(WHAT, ACCESS_REVIEWS, &review).await?;
            if !status.allowed && !status.denied && !status.evaluation_error.is_empty() {
                tracing::debug!(error = %status.evaluation_error, "an access review was not conclusive");
            }
            Ok(AccessVerdict {
                allowed: status.allowed && !status.denied,
                reason: status.reason,
            })
        })
    }
}

impl AuthenticationSource for KubeReviewer {
    fn authentication(&self) -> Pending<'_, Option<BTreeMap<String, String>>> {
        let failed = |problem: String| ReviewError {
            what: "cannot get configmap kube-system/extension-apiserver-authentication",
            problem,
        };
        Box::pin(async move {
            let request = Request::get(CONFIG_MAP)
                .body(Vec::new())
                .map_err(|error| failed(error.to_string()))?;
            let answer =
                tokio::time::timeout(self.timeout, self.client.request::<ConfigMap>(request));
            match answer.await {
                Ok(Ok(map)) => Ok(Some(map.data)),
                Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(None),
                Ok(Err(error)) => Err(failed(chain(&error))),
                Err(_elapsed) => Err(failed(format!("no answer within {:?}", self.timeout))),
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

fn access_review(question: &AccessQuestion) -> serde_json::Value {
    let user = &question.user;
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
        match &question.attempt {
            Attempt::Resource {
                verb,
                group,
                version,
                resource,
                subresource,
                namespace,
                name,
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
                spec.insert(String::from("resourceAttributes"), attributes.into());
            }
            Attempt::Path { verb, path } => {
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

/// An error with all its causes on one line: kube's own words say little.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        cause = error.source();
    }
    text
}
