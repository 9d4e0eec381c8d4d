//! Responses of a kubelet.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue,
};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use kubevitals_model::Timestamp;
use rustls_pki_types::CertificateDer;
use serde_json::{Value, json};

use super::auth::{Credentials, Decision, KubeletAuth};
use super::payload::Payload;
use super::{NodeSnapshot, resource_metrics, summary};
use crate::faults::Fault;
use crate::seed::Seed;
use crate::workload::{Pod, render};

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// Computes the response to a request, with the faults that affect responses. Faults of connections
/// (slow, hang, reset, certificates) are handled by the caller.
pub(crate) fn build(
    node: &NodeSnapshot<'_>,
    auth: &dyn KubeletAuth,
    request: &Parts,
    certificates: &[CertificateDer<'static>],
    now: Timestamp,
    faults: &[Fault],
) -> Response<Payload> {
    let path = request.uri.path();
    let credentials = Credentials {
        node: node.name,
        path,
        bearer: bearer(request),
        certificates,
    };
    let has = |fault| faults.contains(&fault);
    let decision = auth.authorize(&credentials);
    if decision == Decision::Unauthorized || has(Fault::Unauthorized) {
        return text(StatusCode::UNAUTHORIZED, "Unauthorized");
    }
    if decision == Decision::Forbidden || has(Fault::Forbidden) {
        let body = format!(
            "Forbidden (user=system:anonymous, verb=get, resource=nodes, subresource(s)=[{}])\n",
            subresource(path)
        );
        return text(StatusCode::FORBIDDEN, body);
    }
    if has(Fault::ServerError) {
        let body = "Internal Error: failed to get node info: injected fault\n";
        return text(StatusCode::INTERNAL_SERVER_ERROR, body);
    }
    if has(Fault::Garbage) {
        return respond(StatusCode::OK, TEXT, Payload::whole(garbage(node.seed)));
    }
    let (kind, body) = match (path, &request.method) {
        ("/healthz", &Method::GET) => (TEXT, Bytes::from_static(b"ok")),
        ("/metrics/resource" | "/metrics/resource/", _) if has(Fault::NotFound) => {
            return text(StatusCode::NOT_FOUND, "404 page not found\n");
        }
        ("/metrics/resource" | "/metrics/resource/", &Method::GET) => {
            let body = resource_metrics::body(node, now, faults);
            (resource_metrics::CONTENT_TYPE, body.into())
        }
        ("/stats/summary" | "/stats/summary/", &Method::GET | &Method::POST) => {
            let now = skewed(now, faults);
            (
                JSON,
                document(&summary::document(node, now, brief(request))),
            )
        }
        ("/pods" | "/pods/", &Method::GET) => (JSON, document(&pods(&node.view.present))),
        ("/healthz" | "/metrics/resource" | "/stats/summary" | "/pods", _) => {
            return text(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed");
        }
        _ => return text(StatusCode::NOT_FOUND, "404 page not found\n"),
    };
    let is_huge = faults.iter().any(|fault| matches!(fault, Fault::Huge(_)));
    let compresses = kind == resource_metrics::CONTENT_TYPE && accepts_gzip(request) && !is_huge;
    let body = if compresses { gzip(&body) } else { body };
    let mut response = apply_body_faults(kind, body, path, faults);
    if compresses {
        let headers = response.headers_mut();
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

/// Compresses a body with the least effort: the simulator is not what is measured.
fn gzip(body: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing to memory does not fail.
    let compressed = encoder.write_all(body).and_then(|()| encoder.finish());
    compressed.unwrap_or_default().into()
}

fn accepts_gzip(request: &Parts) -> bool {
    let encodings = request.headers.get_all(ACCEPT_ENCODING);
    encodings
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.split(',').any(|encoding| encoding.trim() == "gzip"))
}

/// Builds the response: complete, truncated or far too large.
fn apply_body_faults(
    kind: &'static str,
    body: Bytes,
    path: &str,
    faults: &[Fault],
) -> Response<Payload> {
    if faults.contains(&Fault::Truncated) {
        let announced = HeaderValue::from(body.len());
        let part = body.slice(..body.len() * 2 / 3);
        let mut response = respond(StatusCode::OK, kind, Payload::broken(Some(part)));
        response.headers_mut().insert(CONTENT_LENGTH, announced);
        return response;
    }
    let huge = faults.iter().find_map(|fault| match fault {
        Fault::Huge(bytes) => Some(*bytes),
        _ => None,
    });
    let payload = match huge {
        Some(remaining) if path.starts_with("/metrics/resource") => Payload::Huge {
            start: Some(body),
            remaining,
            count: 0,
        },
        _ => Payload::whole(body),
    };
    respond(StatusCode::OK, kind, payload)
}

/// The pods in the format of the kubelet: without type, and with its own annotations.
fn pods(pods: &[std::sync::Arc<Pod>]) -> Value {
    let items: Vec<Value> = pods
        .iter()
        .map(|pod| {
            let mut item = render::pod_value(pod);
            if let Some(item) = item.as_object_mut() {
                item.remove("kind");
                item.remove("apiVersion");
            }
            let seen = pod.start.unwrap_or(pod.created).rfc3339_millis();
            let metadata = item.get_mut("metadata").and_then(Value::as_object_mut);
            if let Some(metadata) = metadata {
                let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
                if let Some(annotations) = annotations.as_object_mut() {
                    annotations.insert("kubernetes.io/config.seen".into(), seen.as_str().into());
                    annotations.insert("kubernetes.io/config.source".into(), "api".into());
                }
            }
            item
        })
        .collect();
    json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})
}

fn bearer(request: &Parts) -> Option<&str> {
    let value = request.headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim())
        .filter(|token| !token.is_empty())
}

fn brief(request: &Parts) -> bool {
    request.uri.query().is_some_and(|query| {
        query
            .split('&')
            .any(|pair| pair == "only_cpu_and_memory=true")
    })
}

fn subresource(path: &str) -> &'static str {
    if path.starts_with("/metrics") {
        "metrics"
    } else if path.starts_with("/stats") {
        "stats"
    } else if path.starts_with("/pods") {
        "pods proxy"
    } else if path.starts_with("/healthz") {
        "healthz proxy"
    } else {
        "proxy"
    }
}

fn skewed(now: Timestamp, faults: &[Fault]) -> Timestamp {
    let skew = faults.iter().find_map(|fault| match fault {
        Fault::ClockSkew(by) => Some(*by),
        _ => None,
    });
    Timestamp::from_unix_millis(now.unix_millis().saturating_add(skew.unwrap_or(0)))
}

fn garbage(seed: Seed) -> Vec<u8> {
    let mut seed = seed.derive_name("garbage");
    (0..512).flat_map(|_| seed.next().to_le_bytes()).collect()
}

fn document(value: &Value) -> Bytes {
    value.to_string().into()
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Payload> {
    respond(status, TEXT, Payload::whole(body))
}

fn respond(status: StatusCode, kind: &'static str, payload: Payload) -> Response<Payload> {
    let mut response = Response::new(payload);
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
