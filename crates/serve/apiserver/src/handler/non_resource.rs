//! Non-resource paths: discovery, OpenAPI, health, metrics and debugging.

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_TYPE, ETAG, EXPIRES, HeaderValue, IF_NONE_MATCH, LOCATION, VARY,
};
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode};
use hyper::body::Incoming;
use kubevitals_http::query::Query;
use kubevitals_telemetry::Probe;
use serde_json::json;

use super::ApiHandler;
use crate::body::Body;
use crate::discovery::Document;
use crate::encode::gzip::{self, Peeked};
use crate::encode::{pretty_json, yaml};
use crate::negotiate::{
    DiscoveryRepresentation, MediaType, accepts_gzip, accepts_json, discovery, document,
};
use crate::status::ApiStatus;

const AGGREGATED: [(&str, &str); 2] = [
    (
        "v2",
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    ),
    (
        "v2beta1",
        "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
    ),
];

/// Returns the route of a path for metrics, from a closed set.
pub(super) fn route_label(path: &str) -> &'static str {
    const ROUTES: [&str; 9] = [
        "/livez",
        "/readyz",
        "/healthz",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/version",
        "/debug",
        "/apis",
    ];
    ROUTES
        .into_iter()
        .find(|route| {
            path.strip_prefix(route)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
        .unwrap_or_default()
}

impl ApiHandler {
    pub(super) async fn path(
        &self,
        head: &Parts,
        path: &str,
        body: Incoming,
        accept: &str,
        pretty: bool,
        is_privileged: bool,
    ) -> Result<Response<Body>, ApiStatus> {
        for probe in [Probe::Livez, Probe::Readyz, Probe::Healthz] {
            if let Some(rest) = path
                .strip_prefix('/')
                .and_then(|path| path.strip_prefix(probe.name()))
                && (rest.is_empty() || rest.starts_with('/'))
                && let Some(response) = self.probe(probe, rest, head.uri.query(), is_privileged)
            {
                return Ok(response);
            }
        }
        match path {
            "/" | "/index.html" => return Ok(self.index(StatusCode::OK, pretty)),
            "/metrics" => return self.metrics_text(&head.headers),
            "/debug/flags/v" => return self.log_level(&head.method, body).await,
            "/openapi/v2" => return self.openapi_v2(head, accept).await,
            "/openapi/v3" => return Ok(cached(&head.headers, &self.openapi.v3_root, None)),
            _ => {}
        }
        if let Some(rest) = path.strip_prefix("/openapi/v3/") {
            return self.openapi_v3(head, rest, accept).await;
        }
        if let Some(rest) = path.strip_prefix("/debug/pprof") {
            return self.profile(rest, head.uri.query()).await;
        }
        let found = match path.trim_end_matches('/') {
            "/version" => Some(&self.version),
            "/apis" => {
                only_get(&head.method)?;
                return self.groups(&head.headers, accept, pretty);
            }
            path => match path.strip_prefix("/apis/") {
                Some(rest) => self.discovery_of(rest)?,
                None => None,
            },
        };
        let Some(found) = found else {
            return Ok(self.index(StatusCode::NOT_FOUND, pretty));
        };
        only_get(&head.method)?;
        shown(&found.json, document(accept)?, pretty)
    }

    /// Returns the document of `GROUP` or `GROUP/VERSION`.
    fn discovery_of(&self, rest: &str) -> Result<Option<&Document>, ApiStatus> {
        let (group, version) = rest.split_once('/').unwrap_or((rest, ""));
        if self.groups.group(group).is_none() {
            return Ok(None);
        }
        let found = if version.is_empty() {
            self.discovery
                .group
                .iter()
                .find(|(name, _)| *name == group)
                .map(|(_, document)| document)
        } else {
            self.discovery
                .resources
                .iter()
                .find(|(name, one, _)| *name == group && *one == version)
                .map(|(_, _, document)| document)
        };
        found.map(Some).ok_or_else(ApiStatus::no_such_path)
    }

    fn groups(
        &self,
        headers: &HeaderMap,
        accept: &str,
        pretty: bool,
    ) -> Result<Response<Body>, ApiStatus> {
        match discovery(accept)? {
            DiscoveryRepresentation::Legacy(media) => {
                shown(&self.discovery.groups.json, media, pretty)
            }
            DiscoveryRepresentation::Aggregated(version) => {
                let found = self
                    .discovery
                    .aggregated(version)
                    .ok_or_else(ApiStatus::no_such_path)?;
                let kind = AGGREGATED.iter().find(|(known, _)| *known == version);
                let mut response = cached(headers, found, kind.map(|(_, kind)| *kind));
                if pretty && response.status() == StatusCode::OK {
                    *response.body_mut() = Body::full(pretty_json::whole(&found.json));
                }
                let headers = response.headers_mut();
                headers.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
                headers.insert(VARY, HeaderValue::from_static("Accept"));
                Ok(response)
            }
        }
    }

    /// JSON only: clients that request protobuf accept JSON too.
    async fn openapi_v2(&self, head: &Parts, accept: &str) -> Result<Response<Body>, ApiStatus> {
        if !accepts_json(accept) {
            return Ok(not_acceptable());
        }
        compressed(&head.headers, cached(&head.headers, &self.openapi.v2, None)).await
    }

    async fn openapi_v3(
        &self,
        head: &Parts,
        rest: &str,
        accept: &str,
    ) -> Result<Response<Body>, ApiStatus> {
        let Some((path, found)) = self.openapi.v3.iter().find(|(path, _)| path == rest) else {
            return Err(ApiStatus::no_such_path());
        };
        if !accepts_json(accept) {
            return Ok(not_acceptable());
        }
        let mut response = cached(&head.headers, found, None);
        if let Some(hash) = Query::new(head.uri.query()).first("hash") {
            if hash != found.hash {
                let location = format!("/openapi/v3/{path}?hash={}", found.hash);
                let mut response = Response::new(Body::full(""));
                *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
                if let Ok(location) = HeaderValue::try_from(location) {
                    response.headers_mut().insert(LOCATION, location);
                }
                return Ok(response);
            }
            let headers = response.headers_mut();
            headers.insert(
                CACHE_CONTROL,
                HeaderValue::from_static("public, immutable, max-age=31536000"),
            );
            headers.remove(EXPIRES);
        }
        compressed(&head.headers, response).await
    }

    /// Returns the list of all paths, also for a path that does not exist.
    fn index(&self, status: StatusCode, pretty: bool) -> Response<Body> {
        let mut paths: Vec<String> = [
            "/apis",
            "/metrics",
            "/openapi/v2",
            "/openapi/v3",
            "/openapi/v3/",
            "/version",
        ]
        .map(str::to_owned)
        .into();
        for group in self.groups.groups() {
            paths.push(format!("/apis/{}", group.name));
            for version in group.versions {
                paths.push(format!("/apis/{}/{version}", group.name));
            }
        }
        for probe in [Probe::Livez, Probe::Readyz, Probe::Healthz] {
            let name = probe.name();
            paths.push(format!("/{name}"));
            // An unknown check is excluded, so that this report does not count as a probe.
            let report = self.health.report(probe, &[String::from("/")]);
            paths.extend(
                report
                    .outcomes()
                    .iter()
                    .map(|check| format!("/{name}/{}", check.name)),
            );
        }
        paths.sort();
        let json = serde_json::to_vec(&json!({"paths": paths})).unwrap_or_default();
        let body = if pretty {
            pretty_json::whole(&json)
        } else {
            json.into()
        };
        let mut response = Response::new(Body::full(body));
        *response.status_mut() = status;
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}

fn only_get(method: &Method) -> Result<(), ApiStatus> {
    if *method == Method::GET {
        Ok(())
    } else {
        Err(ApiStatus::method_not_allowed("GET"))
    }
}

fn shown(json: &Bytes, media: MediaType, pretty: bool) -> Result<Response<Body>, ApiStatus> {
    let body = match media {
        MediaType::Yaml => {
            let yaml =
                yaml::from_json(json).map_err(|error| ApiStatus::internal(error.to_string()))?;
            Bytes::from(yaml)
        }
        _ if pretty => pretty_json::whole(json),
        _ => json.clone(),
    };
    let mut response = Response::new(Body::full(body));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(media.content_type()));
    Ok(response)
}

/// Returns a document with its `ETag`; 304 if the client has it.
fn cached(headers: &HeaderMap, document: &Document, kind: Option<&'static str>) -> Response<Body> {
    let tag = format!("\"{}\"", document.hash);
    let known = headers
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|one| one.trim().trim_start_matches("W/"))
        .any(|one| one == "*" || one == tag);
    let mut response = if known {
        let mut response = Response::new(Body::full(""));
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        let mut response = Response::new(Body::full(document.json.clone()));
        let kind = kind.unwrap_or("application/json");
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        response
    };
    if let Ok(tag) = HeaderValue::try_from(tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

/// Compresses a schema if the client accepts gzip: schemas are large.
async fn compressed(
    headers: &HeaderMap,
    response: Response<Body>,
) -> Result<Response<Body>, ApiStatus> {
    if !accepts_gzip(headers) {
        return Ok(response);
    }
    let (mut parts, body) = response.into_parts();
    let body = match gzip::peek(body)
        .await
        .map_err(|error| ApiStatus::internal(error.to_string()))?
    {
        Peeked::Small(body) => body,
        Peeked::Large(body) => {
            parts.headers.insert(
                http::header::CONTENT_ENCODING,
                HeaderValue::from_static("gzip"),
            );
            gzip::compress(body)
        }
    };
    parts
        .headers
        .insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    Ok(Response::from_parts(parts, body))
}

/// A response without a body, as Kubernetes sends it for these documents.
fn not_acceptable() -> Response<Body> {
    let mut response = Response::new(Body::full(""));
    *response.status_mut() = StatusCode::NOT_ACCEPTABLE;
    response
}

#[cfg(test)]
mod tests {
    use super::route_label;

    #[test]
    fn routes_are_a_closed_set() {
        for (path, expected) in [
            ("/livez", "/livez"),
            ("/livez/ping", "/livez"),
            ("/livezz", ""),
            ("/openapi/v3/apis/x", "/openapi/v3"),
            ("/apis/g", "/apis"),
            ("/anything", ""),
            ("/", ""),
        ] {
            assert_eq!(route_label(path), expected, "{path}");
        }
    }
}
