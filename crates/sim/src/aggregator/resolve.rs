//! Address and trust roots of the server behind an `APIService`.

#![expect(
    clippy::indexing_slicing,
    reason = "JSON trees: a missing member reads as null, and all writes go to objects"
)]

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kubevitals_model::LabelSelector;
use kubevitals_tls::{Alpn, ClientOptions, ClientTls, ReloadingKeyPair};
use serde_json::Value;

use super::backend::Backend;
use super::{ADDRESS_ANNOTATION, Availability};
use crate::api::resources;
use crate::auth::authority::roots;
use crate::objects::Resource;
use crate::store::{Query, Store, join_key};

/// Resolves the address and builds the TLS configuration; an error becomes the condition.
pub(super) fn resolve(
    store: &Store,
    object: &Value,
    identity: &Arc<ReloadingKeyPair>,
) -> Result<Backend, Availability> {
    let service = &object["spec"]["service"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text(&service["namespace"]), text(&service["name"]));
    let port = service["port"].as_u64().unwrap_or(443);
    let address = match object["metadata"]["annotations"][ADDRESS_ANNOTATION].as_str() {
        Some(address) => address.to_owned(),
        None => address(store, &namespace, &name, port)?,
    };
    let bundle = text(&object["spec"]["caBundle"]);
    let is_insecure = object["spec"]["insecureSkipTLSVerify"] == true;
    let options = ClientOptions {
        alpn: vec![Alpn::H2, Alpn::Http11],
        identity: Some(Arc::clone(identity)),
        ..ClientOptions::default()
    };
    let tls = if is_insecure {
        ClientTls::dangerous_without_verification(&options).map_err(|error| error.to_string())
    } else {
        STANDARD
            .decode(bundle.as_bytes())
            .ok()
            .and_then(|pem| String::from_utf8(pem).ok())
            .ok_or_else(|| "caBundle is not PEM in base64".to_owned())
            .and_then(|pem| roots(&pem, store.now()).map_err(|error| error.to_string()))
            .and_then(|roots| {
                ClientTls::trusting(roots, &options).map_err(|error| error.to_string())
            })
    };
    let host = format!("{name}.{namespace}.svc");
    let key = format!("{host}|{address}|{is_insecure}|{bundle}");
    match tls {
        Ok(tls) => Ok(Backend::new(key, address, host, &tls)),
        Err(problem) => Err(super::failed(&format!("https://{host}"), &problem)),
    }
}

fn address(store: &Store, namespace: &str, name: &str, port: u64) -> Result<String, Availability> {
    let unavailable = |reason, message: String| Availability {
        is_available: false,
        reason,
        message,
    };
    let key = join_key(namespace, name);
    let Some(record) = store.get(Resource::Services, &key) else {
        let message = format!("service/{name} in {namespace:?} is not present");
        return Err(unavailable("ServiceNotFound", message));
    };
    let service = record.value(resources::info(Resource::Services));
    let listed = service["spec"]["ports"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|listed| listed["port"].as_u64() == Some(port));
    let Some(listed) = listed else {
        let message = format!("service/{name} in {namespace:?} is not listening on port {port}");
        return Err(unavailable("ServicePortError", message));
    };
    let port_name = listed["name"].as_str().unwrap_or_default();
    if let Some(address) = from_slices(store, namespace, name, port_name) {
        return Ok(address);
    }
    let Some(record) = store.get(Resource::Endpoints, &key) else {
        let message = format!("cannot find endpointslices for service/{name} in {namespace:?}");
        return Err(unavailable("EndpointsNotFound", message));
    };
    let endpoints = record.value(resources::info(Resource::Endpoints));
    from_endpoints(&endpoints, port_name).ok_or_else(|| {
        let message = format!(
            "endpoints for service/{name} in {namespace:?} have no addresses with port name {port_name:?}"
        );
        unavailable("MissingEndpoints", message)
    })
}

fn from_slices(store: &Store, namespace: &str, name: &str, port_name: &str) -> Option<String> {
    let query = Query {
        namespace: Some(namespace.to_owned()),
        labels: LabelSelector::parse(&format!("kubernetes.io/service-name={name}")).ok()?,
        ..Query::all(Resource::EndpointSlices)
    };
    let snapshot = store.snapshot(&query, None, None, 0).ok()?;
    let info = resources::info(Resource::EndpointSlices);
    snapshot
        .records
        .iter()
        .map(|record| record.value(info))
        .find_map(|slice| {
            let port = port(slice["ports"].as_array()?, port_name)?;
            let endpoint = slice["endpoints"]
                .as_array()?
                .iter()
                .find(|endpoint| endpoint["conditions"]["ready"] != false)?;
            Some(join(endpoint["addresses"][0].as_str()?, port))
        })
}

fn from_endpoints(endpoints: &Value, port_name: &str) -> Option<String> {
    endpoints["subsets"].as_array()?.iter().find_map(|subset| {
        let port = port(subset["ports"].as_array()?, port_name)?;
        Some(join(subset["addresses"][0]["ip"].as_str()?, port))
    })
}

fn port(ports: &[Value], name: &str) -> Option<u64> {
    ports
        .iter()
        .find(|port| port["name"].as_str().unwrap_or_default() == name)?["port"]
        .as_u64()
}

fn join(address: &str, port: u64) -> String {
    if address.contains(':') {
        format!("[{address}]:{port}")
    } else {
        format!("{address}:{port}")
    }
}
