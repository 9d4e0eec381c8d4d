//! Review resources: authentication and authorization checks by creating an object.

#![expect(
    clippy::indexing_slicing,
    reason = "JSON trees: a missing member reads as null, and all writes go to objects"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{Request, StatusCode};
use hyper::body::Incoming;
use serde_json::{Map, Value, json};

use super::body::{self, ApiResponse};
use super::context::ApiContext;
use super::payload::Payload;
use super::request::Target;
use super::resources::REVIEWS;
use super::status::ApiError;
use super::write;
use crate::auth::User;
use crate::auth::authorize::AccessAttributes;

/// Whether a group has a review resource of that name.
pub(crate) fn exists(group: &str, resource: &str) -> bool {
    REVIEWS
        .iter()
        .any(|(review_group, plural, ..)| *review_group == group && *plural == resource)
}

/// Handles a review.
pub(crate) async fn handle(
    context: &Arc<ApiContext>,
    user: &User,
    target: &Target,
    verb: &str,
    request: Request<Incoming>,
) -> Result<ApiResponse, ApiError> {
    if !target.name.is_empty() {
        return Err(ApiError::no_such_path());
    }
    let namespaced = REVIEWS
        .iter()
        .any(|(_, plural, _, namespaced)| *plural == target.resource && *namespaced);
    if verb != "create" || namespaced == target.namespace.is_empty() {
        return Err(ApiError::method_not_allowed());
    }
    super::negotiate::accepts_json(request.headers())?;
    let mut object = Payload::read(request).await?.object()?;
    let spec = object.get("spec").cloned().unwrap_or_default();
    let status = match target.resource.as_str() {
        "bindings" => return write::bind(context, &target.namespace, None, &object),
        "tokenreviews" => token_review(context, &spec),
        "selfsubjectreviews" => json!({"userInfo": user_info(user)}),
        "selfsubjectaccessreviews" => access(context, user, &spec, None)?,
        "selfsubjectrulesreviews" => rules(context, user, &spec)?,
        "localsubjectaccessreviews" => {
            access(context, &subject(&spec)?, &spec, Some(&target.namespace))?
        }
        _ => access(context, &subject(&spec)?, &spec, None)?,
    };
    object.insert("status".to_owned(), status);
    object.entry("metadata").or_insert_with(|| json!({}));
    let kind = REVIEWS
        .iter()
        .find(|(_, plural, ..)| *plural == target.resource);
    object.insert("kind".to_owned(), json!(kind.map(|(_, _, kind, _)| kind)));
    object.insert(
        "apiVersion".to_owned(),
        json!(format!("{}/v1", target.group)),
    );
    Ok(body::json(StatusCode::CREATED, &Value::Object(object)))
}

fn token_review(context: &ApiContext, spec: &Value) -> Value {
    let token = spec["token"].as_str().unwrap_or_default();
    match context.tokens.user(token, context.store.now()) {
        None => json!({"user": {}, "error": "[invalid bearer token]"}),
        Some(user) => {
            let mut status = json!({"authenticated": true, "user": user_info(&user)});
            // Tokens are valid for every audience.
            if let Some(audiences) = spec.get("audiences") {
                status["audiences"] = audiences.clone();
            }
            status
        }
    }
}

fn user_info(user: &User) -> Value {
    let mut info = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        info["uid"] = json!(user.uid);
    }
    if !user.extra.is_empty() {
        info["extra"] = json!(user.extra);
    }
    info
}

/// Returns the user that a review is about.
fn subject(spec: &Value) -> Result<User, ApiError> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let user = User {
        name: text(&spec["user"]).unwrap_or_default(),
        uid: text(&spec["uid"]).unwrap_or_default(),
        groups: spec["groups"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(text)
            .collect(),
        extra: BTreeMap::new(),
    };
    if user.name.is_empty() && user.groups.is_empty() {
        return Err(unprocessable(
            "SubjectAccessReview",
            "[spec.user: Invalid value: \"\": at least one of user or group must be specified]",
        ));
    }
    Ok(user)
}

fn access(
    context: &ApiContext,
    user: &User,
    spec: &Value,
    within: Option<&str>,
) -> Result<Value, ApiError> {
    let text = |member: &Value| member.as_str().unwrap_or_default().to_owned();
    let resource = spec
        .get("resourceAttributes")
        .filter(|value| value.is_object());
    let path = spec
        .get("nonResourceAttributes")
        .filter(|value| value.is_object());
    let allowed = match (resource, path) {
        (Some(resource), None) => {
            let namespace = text(&resource["namespace"]);
            if within.is_some_and(|within| within != namespace) {
                return Err(unprocessable(
                    "LocalSubjectAccessReview",
                    "spec.resourceAttributes.namespace: Invalid value: must match metadata.namespace",
                ));
            }
            context.allows(
                user,
                &AccessAttributes::Resource {
                    verb: &text(&resource["verb"]),
                    group: &text(&resource["group"]),
                    resource: &text(&resource["resource"]),
                    subresource: &text(&resource["subresource"]),
                    namespace: &namespace,
                    name: &text(&resource["name"]),
                },
            )
        }
        (None, Some(path)) => context.allows(
            user,
            &AccessAttributes::Path {
                verb: &text(&path["verb"]),
                path: &text(&path["path"]),
            },
        ),
        _ => {
            return Err(unprocessable(
                "SubjectAccessReview",
                "spec.resourceAttributes: Invalid value: exactly one of nonResourceAttributes or resourceAttributes must be specified",
            ));
        }
    };
    Ok(if allowed {
        json!({"allowed": true, "reason": "allowed by a rule of the simulated cluster"})
    } else {
        json!({"allowed": false})
    })
}

fn rules(context: &ApiContext, user: &User, spec: &Value) -> Result<Value, ApiError> {
    let namespace = spec["namespace"].as_str().unwrap_or_default();
    if namespace.is_empty() {
        return Err(ApiError::bad_request("no namespace on request"));
    }
    let authorizer = context.authorizer.read();
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    if user
        .groups
        .iter()
        .any(|group| group == crate::auth::MASTERS)
    {
        resources.push(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
        paths.push(json!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
    }
    for rule in authorizer.rules_of(user) {
        let holds = rule.namespaces.is_empty()
            || rule.namespaces.iter().any(|n| n == "*" || n == namespace);
        if !rule.resources.is_empty() && holds {
            resources.push(json!({
                "verbs": rule.verbs, "apiGroups": rule.api_groups, "resources": rule.resources,
            }));
        }
        if !rule.non_resource_urls.is_empty() {
            paths.push(json!({"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls}));
        }
    }
    Ok(json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false}))
}

fn unprocessable(kind: &str, problem: &str) -> ApiError {
    let message = format!("{kind}.authorization.k8s.io \"\" is invalid: {problem}");
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).about(
        kind,
        "authorization.k8s.io",
        "",
    )
}

/// A `Status` of success.
pub(crate) fn success() -> Value {
    let mut status = Map::new();
    for (key, value) in [
        ("kind", "Status"),
        ("apiVersion", "v1"),
        ("status", "Success"),
    ] {
        status.insert(key.to_owned(), json!(value));
    }
    status.insert("metadata".to_owned(), json!({}));
    status.insert("code".to_owned(), json!(201));
    Value::Object(status)
}
