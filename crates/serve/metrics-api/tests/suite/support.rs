//! Test harness: nodes and pods to publish, requests, and an independent decoder of responses.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http_body::Body as _;
use kubevitals_apiserver::{
    ApiResource, Body, BodyError, Encoding, GetRequest, ListRequest, Representation, Shape,
    StatusError, WatchRequest,
};
use kubevitals_metrics_api::{Config, Limits, MetricsApi, MetricsApiPublisher};
use kubevitals_model::{
    Bytes, CpuUsage, LabelSelector, Labels, NodeName, PodKey, SteppedClock, Timestamp, Usage,
    parse_field_selector,
};
use kubevitals_usage::{
    ContainerUsage, NodeUsage, PodUsage, UsageConfig, UsagePublisher as _, UsageStore,
};

/// 2025-11-16T00:50:28Z, as in the vectors.
pub(crate) const NOW: i64 = 1_763_254_228_000;

pub(crate) const JSON: Representation = Representation {
    encoding: Encoding::Json,
    shape: Shape::Object,
};
pub(crate) const PROTOBUF: Representation = Representation {
    encoding: Encoding::Protobuf,
    shape: Shape::Object,
};

/// An API, the publisher that fills it, and a store that knows no pod and no node.
pub(crate) struct Harness {
    pub(crate) publisher: MetricsApiPublisher,
    pub(crate) api: MetricsApi,
    pub(crate) store: Arc<UsageStore>,
}

/// The owned parts of a list or watch request.
#[derive(Debug, Clone)]
pub(crate) struct Query {
    pub(crate) version: &'static str,
    pub(crate) namespace: Option<&'static str>,
    pub(crate) labels: LabelSelector,
    pub(crate) fields: &'static str,
    pub(crate) representation: Representation,
}

impl Harness {
    pub(crate) fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    pub(crate) fn with_limits(limits: Limits) -> Self {
        Self::replica(limits, 1)
    }

    /// An API with this number among the replicas.
    pub(crate) fn replica(limits: Limits, replica: u16) -> Self {
        let (publisher, api) = MetricsApi::pair(Config {
            limits,
            clock: SteppedClock::new(Timestamp::from_unix_millis(NOW)).clock(),
            replica: Some(replica),
        });
        let store = UsageStore::new(UsageConfig::new(Duration::from_secs(15)));
        Self {
            publisher,
            api,
            store: Arc::new(store),
        }
    }

    pub(crate) fn resources(&self) -> Vec<Arc<dyn ApiResource>> {
        self.api.group(&self.store).resources
    }

    fn resource(&self, plural: &str) -> Arc<dyn ApiResource> {
        let mut resources = self.resources().into_iter();
        resources.find(|r| r.info().plural == plural).unwrap()
    }
}

pub(crate) fn all(representation: Representation) -> Query {
    Query {
        version: "v1beta1",
        namespace: None,
        labels: LabelSelector::default(),
        fields: "",
        representation,
    }
}

impl Query {
    pub(crate) fn labelled(mut self, selector: &str) -> Self {
        self.labels = LabelSelector::parse(selector).unwrap();
        self
    }

    pub(crate) fn within(mut self, namespace: &'static str) -> Self {
        self.namespace = Some(namespace);
        self
    }

    pub(crate) fn with_fields(mut self, fields: &'static str) -> Self {
        self.fields = fields;
        self
    }

    fn with<T>(&self, run: impl FnOnce(ListRequest<'_>) -> T) -> T {
        run(ListRequest {
            version: self.version,
            namespace: self.namespace,
            labels: &self.labels,
            fields: &parse_field_selector(self.fields).unwrap(),
            representation: self.representation,
        })
    }

    pub(crate) fn open(&self, api: &Harness, plural: &str) -> Result<Body, StatusError> {
        let resource = api.resource(plural);
        self.with(|request| resource.list(&request))
    }

    pub(crate) fn list(&self, api: &Harness, plural: &str) -> Vec<u8> {
        read(self.open(api, plural).unwrap())
    }

    pub(crate) fn watch(
        &self,
        api: &Harness,
        plural: &str,
        resource_version: &str,
        send_initial_events: Option<bool>,
    ) -> Result<Body, StatusError> {
        let resource = api.resource(plural);
        self.with(|list| {
            resource.watch(&WatchRequest {
                list,
                resource_version,
                timeout: Duration::from_hours(1),
                allow_bookmarks: true,
                send_initial_events,
            })
        })
    }
}

pub(crate) fn get(
    api: &Harness,
    plural: &str,
    (namespace, name): (&str, &str),
    representation: Representation,
) -> Result<Vec<u8>, StatusError> {
    let request = GetRequest {
        version: "v1beta1",
        namespace,
        name,
        representation,
    };
    api.resource(plural).get(&request).map(read)
}

/// Reads a body that is never pending.
pub(crate) fn read(mut body: Body) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(chunk) = chunk(&mut body) {
        bytes.extend_from_slice(&chunk);
    }
    bytes
}

/// Reads the next chunk of a body that is never pending.
pub(crate) fn chunk(body: &mut Body) -> Option<bytes::Bytes> {
    Some(chunk_or_error(body)?.unwrap())
}

pub(crate) fn chunk_or_error(body: &mut Body) -> Option<Result<bytes::Bytes, BodyError>> {
    let mut context = Context::from_waker(Waker::noop());
    match Pin::new(body).poll_frame(&mut context) {
        Poll::Ready(frame) => Some(frame?.map(|frame| frame.into_data().unwrap())),
        Poll::Pending => panic!("a list is never pending"),
    }
}

/// Waits for the next chunk of a body.
pub(crate) async fn next(body: &mut Body) -> Option<bytes::Bytes> {
    let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await;
    Some(frame?.unwrap().into_data().unwrap())
}

pub(crate) fn labels(pairs: &[(&str, &str)]) -> Labels {
    let sorted: BTreeMap<&str, &str> = pairs.iter().copied().collect();
    let pairs = sorted.into_iter().map(|(k, v)| (k.into(), v.into()));
    Labels::from_sorted(pairs.collect())
}

pub(crate) fn usage(nanocores: u64, bytes: u64, seconds: i64, window: u64) -> Usage {
    Usage {
        cpu: CpuUsage::from_nanocores(nanocores),
        memory: Bytes::new(bytes),
        swap: None,
        ephemeral_storage: None,
        timestamp: Timestamp::from_unix_millis(seconds * 1000),
        window: Duration::from_millis(window),
    }
}

pub(crate) fn container(name: &str, usage: Usage) -> ContainerUsage {
    ContainerUsage {
        name: name.into(),
        usage,
    }
}

pub(crate) fn pod(
    namespace: &str,
    name: &str,
    labels: Labels,
    containers: Vec<ContainerUsage>,
) -> PodUsage {
    PodUsage {
        key: PodKey::new(namespace, name),
        labels,
        containers,
    }
}

pub(crate) fn publish(api: &Harness, node: &str, own: Option<Usage>, pods: &[PodUsage]) {
    publish_labelled(api, node, &Labels::default(), own, pods);
}

pub(crate) fn publish_labelled(
    api: &Harness,
    node: &str,
    labels: &Labels,
    own: Option<Usage>,
    pods: &[PodUsage],
) {
    api.publisher.publish(&NodeUsage {
        node: &NodeName::new(node),
        labels,
        usage: own.as_ref(),
        pods,
        published: Timestamp::from_unix_millis(NOW),
    });
}

/// A field of a protobuf message. This decoder shares nothing with the crate's.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

pub(crate) type Message = Vec<(u64, Field)>;

/// Decodes a protobuf message; panics if a length is wrong.
pub(crate) fn decode(mut bytes: &[u8]) -> Message {
    fn number(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return value;
            }
        }
        panic!("a number of more than ten bytes");
    }
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = number(&mut bytes);
        let field = match tag & 7 {
            0 => Field::Number(number(&mut bytes)),
            2 => {
                let len = usize::try_from(number(&mut bytes)).unwrap();
                let (content, rest) = bytes.split_at(len);
                bytes = rest;
                Field::Bytes(content.to_vec())
            }
            other => panic!("wire type {other}"),
        };
        fields.push((tag >> 3, field));
    }
    fields
}

pub(crate) fn bytes_of(message: &Message, field: u64) -> Vec<Vec<u8>> {
    let fields = message.iter().filter(|(own, _)| *own == field);
    fields
        .map(|(_, value)| match value {
            Field::Bytes(bytes) => bytes.clone(),
            Field::Number(_) => panic!("field {field} is a number"),
        })
        .collect()
}

pub(crate) fn text_of(message: &Message, field: u64) -> String {
    let bytes = bytes_of(message, field);
    String::from_utf8(bytes.first().cloned().unwrap_or_default()).unwrap()
}

/// Returns the kind and the object in a protobuf body.
pub(crate) fn open_envelope(body: &[u8]) -> (String, Message) {
    let unknown = decode(body.strip_prefix(b"k8s\0").unwrap());
    let kind = decode(&bytes_of(&unknown, 1)[0]);
    (text_of(&kind, 2), decode(&bytes_of(&unknown, 2)[0]))
}

/// Formats a protobuf object of either kind.
pub(crate) fn object_text(object: &[u8]) -> String {
    let object = decode(object);
    let meta = decode(&bytes_of(&object, 1)[0]);
    let mut text = format!("{}/{}", text_of(&meta, 3), text_of(&meta, 1));
    let pair = |entry: Vec<u8>| {
        let entry = decode(&entry);
        (text_of(&entry, 1), bytes_of(&entry, 2)[0].clone())
    };
    for (key, value) in bytes_of(&meta, 11).into_iter().map(pair) {
        text += &format!(" {key}={}", String::from_utf8(value).unwrap());
    }
    for container in bytes_of(&object, 4) {
        let container = decode(&container);
        text += &format!(" [{}", text_of(&container, 1));
        for (name, amount) in bytes_of(&container, 2)
            .into_iter()
            .map(|b| match decode(&b).len() {
                2 => pair(b),
                _ => (String::new(), Vec::new()),
            })
        {
            text += &format!(" {name}:{}", text_of(&decode(&amount), 1));
        }
        text += "]";
    }
    text
}

/// Formats the items of a protobuf list.
pub(crate) fn item_texts(body: &[u8]) -> Vec<String> {
    let (_, list) = open_envelope(body);
    bytes_of(&list, 2)
        .iter()
        .map(|item| object_text(item))
        .collect()
}

/// Returns `namespace/name` of the items of a JSON list.
pub(crate) fn names(body: &[u8]) -> Vec<String> {
    let list: serde_json::Value = serde_json::from_slice(body).unwrap();
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|item| {
            let metadata = &item["metadata"];
            let namespace = metadata["namespace"].as_str().unwrap_or("");
            format!("{namespace}/{}", metadata["name"].as_str().unwrap())
        })
        .collect()
}
