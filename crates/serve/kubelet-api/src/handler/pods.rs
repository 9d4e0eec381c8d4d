//! `/pods` and `/runningpods/`: a `v1.PodList`, written pod by pod.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http::Response;
use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubevitals_apiserver::{Body, BodyError};
use serde::Serialize;

use super::KubeletHandler;
use crate::provider::PodLister;
use crate::response::{Failure, json};

/// A pod in a list, which has neither kind nor version of its own.
#[derive(Serialize)]
struct Item<'a> {
    metadata: &'a ObjectMeta,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<&'a PodSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a PodStatus>,
}

impl KubeletHandler {
    pub(super) async fn pods(&self) -> Result<Response<Body>, Failure> {
        list(self.provider.pods.as_deref(), "pods").await
    }

    pub(super) async fn running_pods(&self) -> Result<Response<Body>, Failure> {
        list(self.provider.running_pods.as_deref(), "running pods").await
    }
}

async fn list(lister: Option<&dyn PodLister>, what: &str) -> Result<Response<Body>, Failure> {
    let lister = lister.ok_or_else(|| Failure::not_implemented(what))?;
    let pods = lister.pods().await?;
    Ok(json(body(pods)))
}

fn body(pods: Vec<Arc<Pod>>) -> Body {
    const HEAD: &[u8] = b"{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{},\"items\":[";
    let head = std::iter::once(Ok(Bytes::from_static(HEAD)));
    let items = pods.into_iter().enumerate().map(|(position, pod)| {
        let mut out = if position > 0 { vec![b','] } else { Vec::new() };
        let item = Item {
            metadata: &pod.metadata,
            spec: pod.spec.as_ref(),
            status: pod.status.as_ref(),
        };
        serde_json::to_writer(&mut out, &item)
            .map_err(|error| BodyError::Broken(error.to_string()))?;
        Ok(out.into())
    });
    let end = std::iter::once(Ok(Bytes::from_static(b"]}\n")));
    Body::fallible(stream::iter(head.chain(items).chain(end)))
}
