//! Who may do what.

mod impersonation;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::impersonation::impersonate;
use crate::config::AuthorizationConfig;
use crate::error::ApiServerError;
use crate::metrics::ApiServerMetrics;
use crate::review::{AccessQuestion, AccessVerdict, Attempt, Reviewer, UserInfo};
use crate::reviews::{Key, KeyBuilder, Reviews};
use crate::status::Failure;

/// The longest reason that is kept, in bytes.
const MAX_REASON: usize = 512;

/// Decides who may do what.
pub(crate) struct Authorizer {
    reviewer: Arc<dyn Reviewer>,
    reviews: Reviews<AccessVerdict>,
    allowed_ttl: Duration,
    denied_ttl: Duration,
    paths: Vec<AllowedPath>,
    groups: Vec<String>,
}

/// A path that everybody may ask for.
#[derive(Debug, PartialEq, Eq)]
enum AllowedPath {
    Exact(String),
    Prefix(String),
}

impl Authorizer {
    pub(crate) fn new(
        config: &AuthorizationConfig,
        metrics: &ApiServerMetrics,
    ) -> Result<Self, ApiServerError> {
        let paths = config
            .always_allow_paths
            .iter()
            .map(|path| AllowedPath::parse(path));
        Ok(Self {
            reviewer: Arc::clone(&config.access),
            reviews: Reviews::new(metrics.access_reviews()),
            allowed_ttl: config.allowed_ttl,
            denied_ttl: config.denied_ttl,
            paths: paths.collect::<Result<_, _>>()?,
            groups: config.always_allow_groups.clone(),
        })
    }

    /// Whether a path is for everybody; resources never are.
    pub(crate) fn is_open(&self, attempt: &Attempt) -> bool {
        let Attempt::Path { path, .. } = attempt else {
            return false;
        };
        self.paths.iter().any(|allowed| match allowed {
            AllowedPath::Exact(exact) => path == exact,
            AllowedPath::Prefix(prefix) => path.starts_with(prefix.as_str()),
        })
    }

    /// Whether a user may do everything.
    pub(crate) fn is_privileged(&self, user: &UserInfo) -> bool {
        user.groups.iter().any(|group| self.groups.contains(group))
    }

    /// Lets pass, or says why not. No answer is a no.
    pub(crate) async fn authorize(&self, user: &UserInfo, attempt: Attempt) -> Result<(), Failure> {
        if self.is_privileged(user) || self.is_open(&attempt) {
            return Ok(());
        }
        let question = AccessQuestion {
            user: user.clone(),
            attempt,
        };
        let (allowed_ttl, denied_ttl) = (self.allowed_ttl, self.denied_ttl);
        let ttl = move |verdict: &AccessVerdict| {
            if verdict.allowed {
                allowed_ttl
            } else {
                denied_ttl
            }
        };
        let reviewer = Arc::clone(&self.reviewer);
        let asked = question.clone();
        let ask = move || async move {
            let mut verdict = reviewer.review_access(&asked).await?;
            verdict
                .reason
                .truncate(verdict.reason.floor_char_boundary(MAX_REASON));
            Ok(verdict)
        };
        match self.reviews.ask(key(&question), ttl, ask).await {
            Ok(AccessVerdict { allowed: true, .. }) => Ok(()),
            Ok(AccessVerdict { reason, .. }) => Err(Failure::forbidden(
                &question.user,
                &question.attempt,
                &reason,
            )),
            Err(error) => Err(Failure::unavailable(format!(
                "whether you may do this could not be found out: {}; try again later",
                error.what
            ))),
        }
    }
}

impl AllowedPath {
    fn parse(text: &str) -> Result<Self, ApiServerError> {
        let bad = |reason| {
            Err(ApiServerError::AlwaysAllowPath {
                path: text.to_owned(),
                reason,
            })
        };
        // Kubernetes takes paths with and without the slash in front.
        let path = text.strip_prefix('/').unwrap_or(text);
        if path.is_empty() || path == "*" {
            return bad("it would allow everything or nothing");
        }
        match path.split_once('*') {
            None => Ok(Self::Exact(format!("/{path}"))),
            Some((prefix, "")) => Ok(Self::Prefix(format!("/{prefix}"))),
            Some(_) => bad("a star may only stand at the end"),
        }
    }
}

fn key(question: &AccessQuestion) -> Key {
    let mut key = KeyBuilder::new();
    let user = &question.user;
    key.text(&user.name);
    key.text(&user.uid);
    key.count(user.groups.len());
    for group in &user.groups {
        key.text(group);
    }
    key.count(user.extra.len());
    for (name, values) in &user.extra {
        key.text(name);
        key.count(values.len());
        for value in values {
            key.text(value);
        }
    }
    match &question.attempt {
        Attempt::Path { verb, path } => {
            key.text("path");
            key.text(verb);
            key.text(path);
        }
        Attempt::Resource {
            verb,
            group,
            version,
            resource,
            subresource,
            namespace,
            name,
        } => {
            key.text("resource");
            for text in [verb, group, version, resource, subresource, namespace, name] {
                key.text(text);
            }
        }
    }
    key.finish()
}

#[cfg(test)]
mod tests;
