//! Request handling: authentication, authorization and routing.

use std::sync::{Arc, PoisonError};

use http::header::{ALLOW, AUTHORIZATION};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use hyper::body::Incoming;

use super::body::{self, Answer};
use super::catalog::{self, Facts};
use super::negotiate::{self, DiscoveryView};
use super::request::{Parameters, RequestInfo, Target};
use super::shared::{Peer, Shared};
use super::status::ApiError;
use super::{discovery, list, reviews, watch, write};
use crate::auth::User;
use crate::auth::authorize::Attempt;
use crate::objects::{LogRequest, Resource};

pub(crate) async fn handle(
    shared: &Arc<Shared>,
    peer: &Peer,
    request: Request<Incoming>,
) -> Answer {
    let parameters = Parameters::parse(request.uri().query());
    let info = RequestInfo::parse(request.method(), request.uri().path(), &parameters);
    let (delay, failure) = shared.faults.hit(&info);
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    let outcome = match failure {
        Some(error) => Err(error),
        None => route(shared, peer, request, &info, &parameters).await,
    };
    outcome.unwrap_or_else(|error| {
        let mut answer = body::failure(&error);
        if error.code == StatusCode::METHOD_NOT_ALLOWED {
            // HTTP requires an `Allow` header; its value depends on the resource, and no client
            // reads it.
            answer
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("GET"));
        }
        answer
    })
}

async fn route(
    shared: &Arc<Shared>,
    peer: &Peer,
    request: Request<Incoming>,
    info: &RequestInfo,
    parameters: &Parameters,
) -> Result<Answer, ApiError> {
    let user = authenticate(shared, peer, request.headers())?;
    let user = impersonate(shared, user, request.headers())?;
    let attempt = attempt(info);
    if !shared.allows(&user, &attempt) {
        return Err(forbidden(&user, info, &attempt));
    }
    if let Some(service) = shared.aggregator.service_for(&info.path) {
        return Ok(shared.aggregator.proxy(&service, &user, request).await);
    }
    let Some(target) = &info.target else {
        return other_path(shared, request.method(), request.headers(), &info.path);
    };
    if let Some(facts) = catalog::find(&target.group, &target.version, &target.resource) {
        return resource(shared, facts, target, info.verb, parameters, request).await;
    }
    if target.version == "v1" && reviews::exists(&target.group, &target.resource) {
        return reviews::answer(shared, &user, target, info.verb, request).await;
    }
    Err(ApiError::no_such_path())
}

/// Authenticates a request. An invalid credential fails, no credential is anonymous.
fn authenticate(shared: &Shared, peer: &Peer, headers: &HeaderMap) -> Result<User, ApiError> {
    if let Peer::User(user) = peer {
        return Ok(user.clone());
    }
    let bearer = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        })
        .filter(|token| !token.is_empty());
    if let Some(token) = bearer {
        return shared
            .tokens
            .user(token, shared.store.now())
            .ok_or_else(ApiError::unauthorized);
    }
    match peer {
        Peer::Untrusted => Err(ApiError::unauthorized()),
        _ => Ok(User::anonymous()),
    }
}

/// Applies the impersonation headers, as sent by `kubectl --as`.
fn impersonate(shared: &Shared, user: User, headers: &HeaderMap) -> Result<User, ApiError> {
    let text = |value: &HeaderValue| value.to_str().unwrap_or_default().to_owned();
    let Some(name) = headers
        .get("impersonate-user")
        .map(text)
        .filter(|name| !name.is_empty())
    else {
        return match headers
            .keys()
            .find(|name| name.as_str().starts_with("impersonate-"))
        {
            None => Ok(user),
            Some(_) => Err(ApiError::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "InternalError",
                "Internal error occurred: requested groups, uid or extra without impersonating a user",
            )),
        };
    };
    let attempt = |resource: &'static str, name: &str| {
        let attempt = Attempt::Resource {
            verb: "impersonate",
            group: "",
            resource,
            subresource: "",
            namespace: "",
            name,
        };
        if shared.allows(&user, &attempt) {
            return Ok(());
        }
        Err(
            ApiError::new(StatusCode::FORBIDDEN, "Forbidden", attempt.refusal(&user))
                .about(resource, "", name),
        )
    };
    attempt("users", &name)?;
    let groups: Vec<String> = headers
        .get_all("impersonate-group")
        .iter()
        .map(text)
        .collect();
    for group in &groups {
        attempt("groups", group)?;
    }
    Ok(User {
        name,
        groups,
        ..User::default()
    }
    .authenticated())
}

fn attempt(info: &RequestInfo) -> Attempt<'_> {
    match &info.target {
        None => Attempt::Path {
            verb: info.verb,
            path: &info.path,
        },
        Some(target) => Attempt::Resource {
            verb: info.verb,
            group: &target.group,
            resource: &target.resource,
            subresource: &target.subresource,
            namespace: &target.namespace,
            name: &target.name,
        },
    }
}

fn forbidden(user: &User, info: &RequestInfo, attempt: &Attempt<'_>) -> ApiError {
    let error = ApiError::new(StatusCode::FORBIDDEN, "Forbidden", attempt.refusal(user));
    match &info.target {
        None => error,
        Some(target) => error.about(&target.resource, &target.group, &target.name),
    }
}

async fn resource(
    shared: &Arc<Shared>,
    facts: &'static Facts,
    target: &Target,
    verb: &str,
    parameters: &Parameters,
    request: Request<Incoming>,
) -> Result<Answer, ApiError> {
    // A list of all namespaces has none in its path; every other request for a namespaced kind has.
    if facts.namespaced && target.namespace.is_empty() && !matches!(verb, "list" | "watch") {
        return Err(match verb {
            "create" | "deletecollection" => ApiError::method_not_allowed(),
            _ => ApiError::no_such_path(),
        });
    }
    if !facts.namespaced && !target.namespace.is_empty() && facts.resource != Resource::Namespaces {
        return Err(ApiError::no_such_path());
    }
    let view = negotiate::view(request.headers())?;
    match (target.subresource.as_str(), verb) {
        ("", "get") => list::get(shared, facts, target, parameters, view),
        ("", "list") => list::list(shared, facts, target, parameters, view),
        ("", "watch") => watch::watch(shared, facts, target, parameters, view),
        (subresource, _) if !subresource.is_empty() && !facts.has_subresource(subresource) => {
            Err(ApiError::no_such_path())
        }
        ("status", "get") => list::get(shared, facts, target, parameters, view),
        ("log", "get") => log(shared, facts, target, parameters),
        (_, "create" | "update" | "patch" | "delete") => {
            write::write(shared, facts, target, verb, parameters, request).await
        }
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// `kubectl logs`. `follow` is not supported: the response ends with the current text.
fn log(
    shared: &Shared,
    facts: &'static Facts,
    target: &Target,
    parameters: &Parameters,
) -> Result<Answer, ApiError> {
    let key = crate::store::join_key(&target.namespace, &target.name);
    let not_found = || ApiError::not_found(facts, &target.name);
    shared
        .store
        .get(facts.resource, &key)
        .ok_or_else(not_found)?;
    let container = parameters.get("container");
    let request = LogRequest {
        namespace: &target.namespace,
        pod: &target.name,
        container: (!container.is_empty()).then_some(container),
        previous: parameters.flag("previous") == Some(true),
        tail_lines: parameters.number("tailLines")?,
    };
    let logs = shared
        .logs
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .as_ref()
        .map(Arc::clone);
    let text = logs
        .and_then(|logs| logs.read(&request))
        .ok_or_else(not_found)?;
    Ok(body::answer(
        StatusCode::OK,
        "text/plain",
        body::Body::Whole(Some(text.into())),
    ))
}

fn other_path(
    shared: &Shared,
    method: &Method,
    headers: &HeaderMap,
    path: &str,
) -> Result<Answer, ApiError> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return Err(ApiError::method_not_allowed());
    }
    let ok = |value: &serde_json::Value| Ok(body::json(StatusCode::OK, value));
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["healthz" | "livez" | "readyz"] | ["livez" | "readyz", "ping"] => {
            Ok(body::text(StatusCode::OK, "ok"))
        }
        ["version"] => ok(&discovery::version()),
        [""] => {
            negotiate::accepts_json(headers)?;
            ok(&discovery::paths(&shared.aggregator.groups()))
        }
        ["api" | "apis"] => {
            let is_core = parts == ["api"];
            let remote = shared.aggregator.groups();
            match negotiate::discovery_view(headers)? {
                DiscoveryView::Aggregated(version) => {
                    let document = discovery::aggregated(is_core, version, &remote);
                    let mut text = document.to_string().into_bytes();
                    text.push(b'\n');
                    Ok(body::answer(
                        StatusCode::OK,
                        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
                        body::Body::Whole(Some(text.into())),
                    ))
                }
                DiscoveryView::Legacy if is_core => {
                    ok(&discovery::core_versions(&shared.address.to_string()))
                }
                DiscoveryView::Legacy => ok(&discovery::groups(&remote)),
            }
        }
        ["api", version] => {
            negotiate::accepts_json(headers)?;
            ok(&discovery::resources("", version).ok_or_else(ApiError::no_such_path)?)
        }
        ["apis", group] => {
            negotiate::accepts_json(headers)?;
            let remote = shared.aggregator.groups();
            ok(&discovery::group(group, &remote).ok_or_else(ApiError::no_such_path)?)
        }
        ["apis", group, version] => {
            negotiate::accepts_json(headers)?;
            ok(&discovery::resources(group, version).ok_or_else(ApiError::no_such_path)?)
        }
        ["openapi", "v2"] => {
            let (asked, answered) = super::protobuf::OPENAPI_V2_TYPES;
            if negotiate::accepts(headers, asked) {
                let document = bytes::Bytes::from_static(super::protobuf::OPENAPI_V2);
                let body = body::Body::Whole(Some(document));
                return Ok(body::answer(StatusCode::OK, answered, body));
            }
            negotiate::accepts_json(headers)?;
            ok(&discovery::openapi_v2())
        }
        ["openapi", "v3"] => ok(&discovery::openapi_v3()),
        _ => Err(ApiError::no_such_path()),
    }
}
