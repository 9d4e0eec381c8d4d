//! Request handling: authentication, authorization and routing.

use std::sync::Arc;

use http::header::{ALLOW, AUTHORIZATION};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use hyper::body::Incoming;

use super::body::{self, ApiResponse};
use super::context::{ApiContext, Peer};
use super::negotiate::{self, DiscoveryView};
use super::request::{Parameters, RequestInfo, Target};
use super::resources::{self, ResourceInfo};
use super::status::ApiError;
use super::{discovery, list, reviews, watch, write};
use crate::auth::User;
use crate::auth::authorize::AccessAttributes;
use crate::objects::{LogRequest, Resource};

pub(crate) async fn handle(
    context: &Arc<ApiContext>,
    peer: &Peer,
    request: Request<Incoming>,
) -> ApiResponse {
    let parameters = Parameters::parse(request.uri().query());
    let request_info = RequestInfo::parse(request.method(), request.uri().path(), &parameters);
    let (delay, failure) = context.faults.hit(&request_info);
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    let outcome = match failure {
        Some(error) => Err(error),
        None => route(context, peer, request, &request_info, &parameters).await,
    };
    outcome.unwrap_or_else(|error| {
        let mut response = body::failure(&error);
        if error.code == StatusCode::METHOD_NOT_ALLOWED {
            // HTTP requires an `Allow` header; its value depends on the resource, and no client
            // reads it.
            response
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("GET"));
        }
        response
    })
}

async fn route(
    context: &Arc<ApiContext>,
    peer: &Peer,
    request: Request<Incoming>,
    request_info: &RequestInfo,
    parameters: &Parameters,
) -> Result<ApiResponse, ApiError> {
    let user = authenticate(context, peer, request.headers())?;
    let user = impersonate(context, user, request.headers())?;
    let attributes = attributes(request_info);
    if !context.allows(&user, &attributes) {
        return Err(forbidden(&user, request_info, &attributes));
    }
    if let Some(service) = context.aggregator.service_for(&request_info.path) {
        return Ok(context.aggregator.proxy(&service, &user, request).await);
    }
    let Some(target) = &request_info.target else {
        return other_path(
            context,
            request.method(),
            request.headers(),
            &request_info.path,
        );
    };
    if let Some(info) = resources::find(&target.group, &target.version, &target.resource) {
        return resource(
            context,
            info,
            target,
            request_info.verb,
            parameters,
            request,
        )
        .await;
    }
    if target.version == "v1" && reviews::exists(&target.group, &target.resource) {
        return reviews::handle(context, &user, target, request_info.verb, request).await;
    }
    Err(ApiError::no_such_path())
}

/// Authenticates a request. An invalid credential fails, no credential is anonymous.
fn authenticate(context: &ApiContext, peer: &Peer, headers: &HeaderMap) -> Result<User, ApiError> {
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
        return context
            .tokens
            .user(token, context.store.now())
            .ok_or_else(ApiError::unauthorized);
    }
    match peer {
        Peer::Untrusted => Err(ApiError::unauthorized()),
        _ => Ok(User::anonymous()),
    }
}

/// Applies the impersonation headers, as sent by `kubectl --as`.
fn impersonate(context: &ApiContext, user: User, headers: &HeaderMap) -> Result<User, ApiError> {
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
    let check = |resource: &'static str, name: &str| {
        let attributes = AccessAttributes::Resource {
            verb: "impersonate",
            group: "",
            resource,
            subresource: "",
            namespace: "",
            name,
        };
        if context.allows(&user, &attributes) {
            return Ok(());
        }
        Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "Forbidden",
            attributes.forbidden_message(&user),
        )
        .about(resource, "", name))
    };
    check("users", &name)?;
    let groups: Vec<String> = headers
        .get_all("impersonate-group")
        .iter()
        .map(text)
        .collect();
    for group in &groups {
        check("groups", group)?;
    }
    Ok(User {
        name,
        groups,
        ..User::default()
    }
    .authenticated())
}

fn attributes(request_info: &RequestInfo) -> AccessAttributes<'_> {
    match &request_info.target {
        None => AccessAttributes::Path {
            verb: request_info.verb,
            path: &request_info.path,
        },
        Some(target) => AccessAttributes::Resource {
            verb: request_info.verb,
            group: &target.group,
            resource: &target.resource,
            subresource: &target.subresource,
            namespace: &target.namespace,
            name: &target.name,
        },
    }
}

fn forbidden(
    user: &User,
    request_info: &RequestInfo,
    attributes: &AccessAttributes<'_>,
) -> ApiError {
    let error = ApiError::new(
        StatusCode::FORBIDDEN,
        "Forbidden",
        attributes.forbidden_message(user),
    );
    match &request_info.target {
        None => error,
        Some(target) => error.about(&target.resource, &target.group, &target.name),
    }
}

async fn resource(
    context: &Arc<ApiContext>,
    info: &'static ResourceInfo,
    target: &Target,
    verb: &str,
    parameters: &Parameters,
    request: Request<Incoming>,
) -> Result<ApiResponse, ApiError> {
    // A list of all namespaces has none in its path; every other request for a namespaced kind has.
    if info.namespaced && target.namespace.is_empty() && !matches!(verb, "list" | "watch") {
        return Err(match verb {
            "create" | "deletecollection" => ApiError::method_not_allowed(),
            _ => ApiError::no_such_path(),
        });
    }
    if !info.namespaced && !target.namespace.is_empty() && info.resource != Resource::Namespaces {
        return Err(ApiError::no_such_path());
    }
    let view = negotiate::view(request.headers())?;
    match (target.subresource.as_str(), verb) {
        ("", "get") => list::get(context, info, target, parameters, view),
        ("", "list") => list::list(context, info, target, parameters, view),
        ("", "watch") => watch::watch(context, info, target, parameters, view),
        (subresource, _) if !subresource.is_empty() && !info.has_subresource(subresource) => {
            Err(ApiError::no_such_path())
        }
        ("status", "get") => list::get(context, info, target, parameters, view),
        ("log", "get") => log(context, info, target, parameters),
        (_, "create" | "update" | "patch" | "delete") => {
            write::write(context, info, target, verb, parameters, request).await
        }
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// `kubectl logs`. `follow` is not supported: the response ends with the current text.
fn log(
    context: &ApiContext,
    info: &'static ResourceInfo,
    target: &Target,
    parameters: &Parameters,
) -> Result<ApiResponse, ApiError> {
    let key = crate::store::join_key(&target.namespace, &target.name);
    let not_found = || ApiError::not_found(info, &target.name);
    context
        .store
        .get(info.resource, &key)
        .ok_or_else(not_found)?;
    let container = parameters.get("container");
    let request = LogRequest {
        namespace: &target.namespace,
        pod: &target.name,
        container: (!container.is_empty()).then_some(container),
        previous: parameters.flag("previous") == Some(true),
        tail_lines: parameters.number("tailLines")?,
    };
    let logs = context.logs.read().as_ref().map(Arc::clone);
    let text = logs
        .and_then(|logs| logs.read(&request))
        .ok_or_else(not_found)?;
    Ok(body::response(
        StatusCode::OK,
        "text/plain",
        body::Body::Whole(Some(text.into())),
    ))
}

fn other_path(
    context: &ApiContext,
    method: &Method,
    headers: &HeaderMap,
    path: &str,
) -> Result<ApiResponse, ApiError> {
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
            ok(&discovery::paths(&context.aggregator.groups()))
        }
        ["api" | "apis"] => {
            let is_core = parts == ["api"];
            let remote = context.aggregator.groups();
            match negotiate::discovery_view(headers)? {
                DiscoveryView::Aggregated(version) => {
                    let document = discovery::aggregated(is_core, version, &remote);
                    let mut text = document.to_string().into_bytes();
                    text.push(b'\n');
                    Ok(body::response(
                        StatusCode::OK,
                        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
                        body::Body::Whole(Some(text.into())),
                    ))
                }
                DiscoveryView::Legacy if is_core => {
                    ok(&discovery::core_versions(&context.address.to_string()))
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
            let remote = context.aggregator.groups();
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
                return Ok(body::response(StatusCode::OK, answered, body));
            }
            negotiate::accepts_json(headers)?;
            ok(&discovery::openapi_v2())
        }
        ["openapi", "v3"] => ok(&discovery::openapi_v3()),
        _ => Err(ApiError::no_such_path()),
    }
}
