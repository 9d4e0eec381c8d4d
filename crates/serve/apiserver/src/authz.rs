//! Authorization.

mod impersonation;

use std::sync::Arc;
use std::time::Duration;

use kubevitals_telemetry::OutageLog;

pub(crate) use self::impersonation::{impersonate, is_requested as is_impersonation_requested};
use crate::authn::ANONYMOUS;
use crate::config::AuthorizationConfig;
use crate::error::ApiServerError;
use crate::metrics::AccessMetrics;
use crate::review_cache::{Key, KeyBuilder, ReviewCache, ReviewFailure, Source};
use crate::reviewer::{
    AccessDecision, AccessReview, Attributes, Reviewer, SelectorRequirement, UserInfo,
};
use crate::status::ApiStatus;

/// Maximum length of a reason.
const MAX_REASON_BYTES: usize = 512;

/// Authorizes requests.
pub(crate) struct Authorizer {
    reviewer: Arc<dyn Reviewer>,
    cache: ReviewCache<AccessDecision>,
    allowed_ttl: Duration,
    denied_ttl: Duration,
    paths: Vec<AllowedPath>,
    groups: Vec<String>,
}

/// A path that needs no authorization.
#[derive(Debug, PartialEq, Eq)]
enum AllowedPath {
    Exact(String),
    Prefix(String),
}

impl Authorizer {
    pub(crate) fn new(
        config: &AuthorizationConfig,
        metrics: &AccessMetrics,
        outage: &OutageLog,
    ) -> Result<Self, ApiServerError> {
        let paths = config
            .always_allow_paths
            .iter()
            .map(|path| AllowedPath::parse(path));
        Ok(Self {
            reviewer: Arc::clone(&config.access),
            cache: ReviewCache::new(metrics.access_reviews(), outage),
            allowed_ttl: config.allowed_ttl,
            denied_ttl: config.denied_ttl,
            paths: paths.collect::<Result<_, _>>()?,
            groups: config.always_allow_groups.clone(),
        })
    }

    /// Whether a request needs no authorization; resources always do.
    pub(crate) fn is_always_allowed(&self, attributes: &Attributes) -> bool {
        let Attributes::Path { path, .. } = attributes else {
            return false;
        };
        self.paths.iter().any(|allowed| match allowed {
            AllowedPath::Exact(exact) => path == exact,
            AllowedPath::Prefix(prefix) => path.starts_with(prefix.as_str()),
        })
    }

    /// Whether all requests of a user are allowed.
    pub(crate) fn is_privileged(&self, user: &UserInfo) -> bool {
        user.groups.iter().any(|group| self.groups.contains(group))
    }

    /// Authorizes a request. A failed review denies it.
    pub(crate) async fn authorize(
        &self,
        user: &UserInfo,
        attributes: Attributes,
    ) -> Result<(), ApiStatus> {
        self.authorize_explained(user, attributes, "").await
    }

    /// Authorizes a request; `hint` is the reason of a denial for which the authorizer gives none.
    async fn authorize_explained(
        &self,
        user: &UserInfo,
        attributes: Attributes,
        hint: &'static str,
    ) -> Result<(), ApiStatus> {
        if self.is_privileged(user) || self.is_always_allowed(&attributes) {
            return Ok(());
        }
        let review = AccessReview {
            user: user.clone(),
            attributes,
        };
        let (allowed_ttl, denied_ttl) = (self.allowed_ttl, self.denied_ttl);
        let ttl = move |decision: &AccessDecision| {
            if decision.allowed {
                allowed_ttl
            } else {
                denied_ttl
            }
        };
        let reviewer = Arc::clone(&self.reviewer);
        let sent = review.clone();
        let send = move || async move {
            let mut decision = reviewer.review_access(&sent).await?;
            decision
                .reason
                .truncate(decision.reason.floor_char_boundary(MAX_REASON_BYTES));
            Ok(decision)
        };
        let source = if review.user.name == ANONYMOUS {
            Source::Anonymous
        } else {
            Source::Authenticated
        };
        match self.cache.get(key(&review), source, ttl, send).await {
            Ok(AccessDecision { allowed: true, .. }) => Ok(()),
            Ok(AccessDecision { reason, .. }) => Err(ApiStatus::forbidden(
                &review.user,
                &review.attributes,
                if reason.is_empty() { hint } else { &reason },
            )),
            Err(ReviewFailure::Failed(error)) => Err(ApiStatus::unavailable(format!(
                "failed to authorize the request: {}; try again later",
                error.operation
            ))),
            Err(ReviewFailure::Limited) => Err(ApiStatus::too_many(
                "too many access reviews, please try again later",
                1,
            )),
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
        // Kubernetes accepts paths with and without the leading slash.
        let path = text.strip_prefix('/').unwrap_or(text);
        if path.is_empty() || path == "*" {
            return bad("it would allow everything or nothing");
        }
        match path.split_once('*') {
            None => Ok(Self::Exact(format!("/{path}"))),
            Some((prefix, "")) => Ok(Self::Prefix(format!("/{prefix}"))),
            Some(_) => bad("`*` is allowed at the end only"),
        }
    }
}

fn key(review: &AccessReview) -> Key {
    let mut key = KeyBuilder::new();
    let user = &review.user;
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
    match &review.attributes {
        Attributes::Path { verb, path } => {
            key.text("path");
            key.text(verb);
            key.text(path);
        }
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
            key.text("resource");
            for text in [verb, group, version, resource, subresource, namespace, name] {
                key.text(text);
            }
            put_selector(&mut key, field_selector);
            put_selector(&mut key, label_selector);
        }
    }
    key.finish()
}

fn put_selector(key: &mut KeyBuilder, selector: &[SelectorRequirement]) {
    key.count(selector.len());
    for requirement in selector {
        key.text(&requirement.key);
        key.text(requirement.operator.name());
        key.count(requirement.values.len());
        for value in &requirement.values {
            key.text(value);
        }
    }
}

#[cfg(test)]
mod tests;
