//! The two resources as the kit sees them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kubevitals_apiserver::{
    ApiResource, Body, Encoding, GetRequest, ListRequest, Representation, ResourceInfo, Shape,
    StatusError, WatchRequest,
};
use kubevitals_model::PodKeyRef;
use kubevitals_usage::{Absence, UsageStore};

use crate::api::State;
use crate::list::{ListForm, ListPieces, meta_version};
use crate::metrics::Tally;
use crate::render::table::{Columns, RowObject};
use crate::render::{Kind, TypeMeta, json, proto};
use crate::select::Cursor;
use crate::watch;

/// Nodes, or pods.
pub(crate) struct Resource {
    kind: Kind,
    facts: ResourceInfo,
    state: Arc<State>,
    store: Arc<UsageStore>,
}

impl Resource {
    pub(crate) fn new(kind: Kind, state: Arc<State>, store: Arc<UsageStore>) -> Self {
        let facts = match kind {
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
            facts,
            state,
            store,
        }
    }

    /// Returns the error of a pod or node without metrics, with the reason that the store gives.
    fn not_found(&self, request: &GetRequest<'_>) -> StatusError {
        let GetRequest {
            namespace, name, ..
        } = *request;
        let now = self.state.config.clock.now();
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
        &self.facts
    }

    fn get(&self, request: &GetRequest<'_>) -> Result<Body, StatusError> {
        refuse_binary_table(request.representation)?;
        let catalog = self.state.catalog.load_full();
        let found = match self.kind {
            Kind::Node => catalog.node(request.name).and_then(|entry| entry.own()),
            Kind::Pod => {
                let key = PodKeyRef {
                    namespace: request.namespace,
                    name: request.name,
                };
                catalog.pods.get(key).and_then(|slot| catalog.pod(slot))
            }
        };
        let Some(found) = found else {
            return Err(self.not_found(request));
        };
        let counts = &self.state.counts;
        counts.gets.fetch_add(1, Ordering::Relaxed);
        let mut tally = Tally::new(self.state.config.clock.now());
        tally.add(found.measured);
        counts.freshness.add(&tally);
        let form = ListForm {
            kind: self.kind,
            api_version: api_version(request.version),
            representation: request.representation,
        };
        Ok(Body::full(one(form, found.message(&mut Vec::new()), "")))
    }

    fn list(&self, request: &ListRequest<'_>) -> Result<Body, StatusError> {
        refuse_binary_table(request.representation)?;
        let cursor = Cursor::open(&self.state, self.kind, request)?;
        self.state.counts.lists.fetch_add(1, Ordering::Relaxed);
        let form = ListForm {
            kind: self.kind,
            api_version: api_version(request.version),
            representation: request.representation,
        };
        Ok(Body::pieces(ListPieces::new(&self.state, cursor, form)))
    }

    fn watch(&self, request: &WatchRequest<'_>) -> Result<Body, StatusError> {
        refuse_binary_table(request.list.representation)?;
        let form = ListForm {
            kind: self.kind,
            api_version: api_version(request.list.version),
            representation: request.list.representation,
        };
        watch::open(&self.state, form, request)
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
            format!("podmetrics.metrics.k8s.io \"{namespace}/{name}\" not found: {reason}")
        }
    }
}

/// The body of one object.
pub(crate) fn one(of: ListForm, message: &[u8], resource_version: &str) -> Vec<u8> {
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
            let (kind, message) = bare(of, message, resource_version);
            proto::put_envelope(&mut out, kind, message.len());
            out.extend_from_slice(&message);
            proto::put_envelope_end(&mut out);
            return out;
        }
    }
    out.push(b'\n');
    out
}

/// The message of one object in protobuf, and what it is.
pub(crate) fn bare(of: ListForm, message: &[u8], resource_version: &str) -> (TypeMeta, Vec<u8>) {
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

/// Cells of a table are of no fixed type, so that protobuf has no form for them.
fn refuse_binary_table(representation: Representation) -> Result<(), StatusError> {
    match representation {
        Representation {
            encoding: Encoding::Protobuf,
            shape: Shape::Table { .. },
        } => Err(StatusError::BadRequest {
            message: "a Table cannot be encoded as protobuf, ask for application/json".to_owned(),
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
    fn a_missing_pod_is_told_from_one_without_metrics() {
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
            "podmetrics.metrics.k8s.io \"a/young\" not found: node n is not known"
        );
        assert_eq!(
            pod_not_found(pod, &Absence::PodUnknown),
            "pods \"young\" not found"
        );
    }

    #[test]
    fn a_missing_node_is_told_from_one_without_metrics() {
        let failure = Absence::NodeFails(NodeFailure {
            node: NodeName::new("n"),
            why: "certificate is not valid for 10.0.0.3".into(),
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
