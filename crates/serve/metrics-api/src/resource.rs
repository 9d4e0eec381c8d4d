//! The resources `nodes` and `pods` of the API group.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kubevitals_apiserver::{
    ApiResource, Body, Encoding, GetRequest, ListRequest, Representation, ResourceInfo, Shape,
    StatusError, WatchRequest,
};
use kubevitals_model::PodKeyRef;
use kubevitals_usage::{Absence, UsageStore};

use crate::api::Snapshots;
use crate::list::{ListChunks, ResponseFormat, meta_version};
use crate::metrics::ResponseAges;
use crate::readers::Reader;
use crate::render::table::{Columns, RowObject};
use crate::render::{Kind, TypeMeta, json, proto};
use crate::watch;

/// One resource of the API group.
pub(crate) struct Resource {
    kind: Kind,
    info: ResourceInfo,
    snapshots: Arc<Snapshots>,
    store: Arc<UsageStore>,
}

impl Resource {
    pub(crate) fn new(kind: Kind, snapshots: Arc<Snapshots>, store: Arc<UsageStore>) -> Self {
        let info = match kind {
            Kind::Node => ResourceInfo {
                plural: "nodes",
                singular: "",
                kind: "NodeMetrics",
                list_kind: "NodeMetricsList",
                namespaced: false,
                selectable_fields: &["metadata.name"],
                watchable: true,
                schemas: include_str!("schemas/nodes.json"),
            },
            Kind::Pod => ResourceInfo {
                plural: "pods",
                singular: "",
                kind: "PodMetrics",
                list_kind: "PodMetricsList",
                namespaced: true,
                selectable_fields: &["metadata.name", "metadata.namespace", "spec.nodeName"],
                watchable: true,
                schemas: include_str!("schemas/pods.json"),
            },
        };
        Self {
            kind,
            info,
            snapshots,
            store,
        }
    }

    /// Returns the error of a pod or node without metrics, with the reason that the store gives.
    fn not_found(&self, request: &GetRequest<'_>) -> StatusError {
        let GetRequest {
            namespace, name, ..
        } = *request;
        let now = self.snapshots.config.clock.moment();
        let message = match self.kind {
            Kind::Node => node_not_found(name, &self.store.explain_node(name, now)),
            Kind::Pod => {
                let pod = PodKeyRef { namespace, name };
                pod_not_found(pod, &self.store.explain_pod(pod, now))
            }
        };
        StatusError::NotFound { message }
    }
}

impl ApiResource for Resource {
    fn info(&self) -> &ResourceInfo {
        &self.info
    }

    fn get(&self, request: &GetRequest<'_>) -> Result<Body, StatusError> {
        reject_protobuf_table(request.representation)?;
        let snapshot = self.snapshots.current.load_full();
        let object = match self.kind {
            Kind::Node => snapshot.node(request.name).and_then(|entry| entry.own()),
            Kind::Pod => {
                let key = PodKeyRef {
                    namespace: request.namespace,
                    name: request.name,
                };
                snapshot.pods.get(key).and_then(|slot| snapshot.pod(slot))
            }
        };
        let Some(object) = object else {
            return Err(self.not_found(request));
        };
        let counters = &self.snapshots.counters;
        counters.gets.fetch_add(1, Ordering::Relaxed);
        let mut ages = ResponseAges::new(self.snapshots.config.clock.now());
        ages.add(object.sampled);
        counters.freshness.add(&ages);
        let format = ResponseFormat {
            kind: self.kind,
            api_version: api_version(request.version),
            representation: request.representation,
        };
        Ok(Body::full(encode_object(
            format,
            object.message(&mut Vec::new()),
            "",
        )))
    }

    fn list(&self, request: &ListRequest<'_>) -> Result<Body, StatusError> {
        reject_protobuf_table(request.representation)?;
        let reader = Reader::open(&self.snapshots, self.kind, request);
        self.snapshots
            .counters
            .lists
            .fetch_add(1, Ordering::Relaxed);
        let format = ResponseFormat {
            kind: self.kind,
            api_version: api_version(request.version),
            representation: request.representation,
        };
        Ok(ListChunks::body(&self.snapshots, reader, format))
    }

    fn watch(&self, request: &WatchRequest<'_>) -> Result<Body, StatusError> {
        reject_protobuf_table(request.list.representation)?;
        let format = ResponseFormat {
            kind: self.kind,
            api_version: api_version(request.list.version),
            representation: request.list.representation,
        };
        watch::open(&self.snapshots, format, request)
    }
}

fn node_not_found(name: &str, absence: &Absence) -> String {
    match absence {
        Absence::NodeUnknown(_) => format!("nodes \"{name}\" not found"),
        reason => format!("nodemetrics.metrics.k8s.io \"{name}\" not found: {reason}"),
    }
}

fn pod_not_found(pod: PodKeyRef<'_>, absence: &Absence) -> String {
    let PodKeyRef { namespace, name } = pod;
    match absence {
        Absence::PodUnknown => format!("pods \"{name}\" not found"),
        reason => {
            let reason = without_node_details(reason);
            format!("podmetrics.metrics.k8s.io \"{namespace}/{name}\" not found: {reason}")
        }
    }
}

/// Removes the words of the node from the reason why a pod has no metrics. Whoever may read a pod
/// knows the name of its node, but not its addresses and certificates.
fn without_node_details(absence: &Absence) -> Absence {
    let mut absence = absence.clone();
    if let Absence::ScrapeFailed(failure)
    | Absence::Stale {
        failure: Some(failure),
        ..
    } = &mut absence
    {
        failure.reason = Arc::from("it cannot be scraped");
    }
    absence
}

/// Encodes the response body of one object.
pub(crate) fn encode_object(of: ResponseFormat, message: &[u8], resource_version: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() * 2 + 256);
    let object = of.kind.object(of.api_version);
    match (of.representation.shape, of.representation.encoding) {
        (Shape::Object, Encoding::Json) => {
            json::Writer::new().put_object(
                &mut out,
                of.kind,
                Some(object),
                message,
                resource_version,
            );
        }
        (Shape::Metadata { version }, Encoding::Json) => {
            json::Writer::new().put_partial(
                &mut out,
                meta_version(version),
                message,
                resource_version,
            );
        }
        (Shape::Table { version, include }, _) => {
            let api_version = meta_version(version);
            let with = RowObject {
                include,
                meta_version: api_version,
                object,
            };
            let columns = Columns::of(of.kind, message);
            out.push(b'{');
            let kind = "Table";
            json::put_type_meta(&mut out, TypeMeta { api_version, kind });
            out.extend_from_slice(b",\"metadata\":");
            json::put_list_meta(&mut out, resource_version);
            out.extend_from_slice(b",\"columnDefinitions\":");
            columns.put(&mut out);
            out.extend_from_slice(b",\"rows\":[");
            columns.put_row(
                &mut json::Writer::new(),
                &mut out,
                of.kind,
                message,
                with,
                resource_version,
            );
            out.extend_from_slice(b"]}");
        }
        (Shape::Object | Shape::Metadata { .. }, Encoding::Protobuf) => {
            let (kind, message) = protobuf_object(of, message, resource_version);
            proto::put_envelope(&mut out, kind, message.len());
            out.extend_from_slice(&message);
            proto::put_envelope_end(&mut out);
            return out;
        }
    }
    out.push(b'\n');
    out
}

/// Returns the protobuf message of one object and its type, without an envelope.
pub(crate) fn protobuf_object(
    of: ResponseFormat,
    message: &[u8],
    resource_version: &str,
) -> (TypeMeta, Vec<u8>) {
    let message = if resource_version.is_empty() {
        message.to_vec()
    } else {
        proto::with_version(message, resource_version).unwrap_or_default()
    };
    match of.representation.shape {
        Shape::Metadata { version } => {
            let kind = TypeMeta {
                api_version: meta_version(version),
                kind: "PartialObjectMetadata",
            };
            (kind, proto::partial(&message))
        }
        _ => (of.kind.object(of.api_version), message),
    }
}

/// The cells of a table have no fixed type, so tables have no protobuf encoding.
fn reject_protobuf_table(representation: Representation) -> Result<(), StatusError> {
    match representation {
        Representation {
            encoding: Encoding::Protobuf,
            shape: Shape::Table { .. },
        } => Err(StatusError::BadRequest {
            message: "a Table cannot be encoded as protobuf, request application/json".to_owned(),
        }),
        _ => Ok(()),
    }
}

fn api_version(version: &str) -> &'static str {
    match version {
        "v1" => "metrics.k8s.io/v1",
        _ => "metrics.k8s.io/v1beta1",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kubevitals_model::NodeName;
    use kubevitals_usage::NodeFailure;

    use super::*;

    #[test]
    fn a_missing_pod_and_a_pod_without_metrics_have_different_messages() {
        let pod = PodKeyRef {
            namespace: "a",
            name: "young",
        };
        let first = Absence::FirstSample {
            container: None,
            age: Duration::from_secs(7),
            due_in: Some(Duration::from_secs(8)),
        };
        assert_eq!(
            pod_not_found(pod, &first),
            "podmetrics.metrics.k8s.io \"a/young\" not found: \
             first sample 7 s old, second due in 8 s"
        );
        assert_eq!(
            pod_not_found(pod, &Absence::NodeUnknown(NodeName::new("n"))),
            "podmetrics.metrics.k8s.io \"a/young\" not found: node n not found"
        );
        assert_eq!(
            pod_not_found(pod, &Absence::PodUnknown),
            "pods \"young\" not found"
        );
    }

    /// The address of the node and what its kubelet said used to be shown to every tenant.
    #[test]
    fn a_pod_without_metrics_does_not_show_details_of_its_node() {
        let failure = NodeFailure {
            node: NodeName::new("n"),
            reason: "certificate is not valid for 10.0.0.3".into(),
            failing_for: Duration::ZERO,
            retry_in: Some(Duration::from_secs(9)),
        };
        let pod = PodKeyRef {
            namespace: "a",
            name: "p",
        };
        assert_eq!(
            pod_not_found(pod, &Absence::ScrapeFailed(failure.clone())),
            "podmetrics.metrics.k8s.io \"a/p\" not found: \
             node n: it cannot be scraped (next attempt in 9 s)"
        );
        let stale = Absence::Stale {
            dropped_ago: Duration::from_mins(1),
            failure: Some(failure),
        };
        assert_eq!(
            pod_not_found(pod, &stale),
            "podmetrics.metrics.k8s.io \"a/p\" not found: last usage became stale 60 s ago; \
             node n: it cannot be scraped (next attempt in 9 s)"
        );
    }

    #[test]
    fn a_missing_node_and_a_node_without_metrics_have_different_messages() {
        let failure = Absence::ScrapeFailed(NodeFailure {
            node: NodeName::new("n"),
            reason: "certificate is not valid for 10.0.0.3".into(),
            failing_for: Duration::ZERO,
            retry_in: None,
        });
        assert_eq!(
            node_not_found("n", &failure),
            "nodemetrics.metrics.k8s.io \"n\" not found: \
             node n: certificate is not valid for 10.0.0.3"
        );
        assert_eq!(
            node_not_found("n", &Absence::NodeUnknown(NodeName::new("n"))),
            "nodes \"n\" not found"
        );
    }
}
