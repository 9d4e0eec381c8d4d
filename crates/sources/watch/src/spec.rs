//! What a stream asks for, and how patient it is.

use std::fmt::Write;
use std::marker::PhantomData;
use std::time::Duration;

use kubevitals_model::{Clock, PartialObjectMeta, ResourceVersion};

use crate::kind::{Form, Kind, Resource, TypedKind};

/// Which objects a stream carries, and in which form.
#[derive(Debug, Clone)]
pub struct StreamSpec<K> {
    /// In logs, metrics and health checks: lower case, and one of a few that the program knows.
    pub name: &'static str,
    /// Which resource.
    pub resource: Resource,
    /// Only objects of this namespace.
    pub namespace: Option<String>,
    /// Only objects whose labels satisfy this.
    pub label_selector: Option<String>,
    /// Only objects whose fields satisfy this.
    pub field_selector: Option<String>,
    /// The annotations that are kept; all others are skipped.
    pub annotations: Vec<String>,
    /// How patient it is.
    pub options: StreamOptions,
    kind: PhantomData<fn() -> K>,
}

/// How patient a stream is, and how much it takes.
#[derive(Debug, Clone)]
pub struct StreamOptions {
    /// The server is asked to end each watch after a random time between this and twice this, so
    /// that watches spread over the servers again after one was away.
    pub watch_timeout: Duration,
    /// An answer must begin within this.
    pub answer_timeout: Duration,
    /// No piece of a list may take longer than this to follow the one before. It also bounds the
    /// wait for the end of the initial events of a streaming list.
    pub list_silence: Duration,
    /// A watch that was sent bookmarks and is then silent for this long is dead: servers send one
    /// about every minute. Where none ever came, only the timeout of the watch tells.
    pub watch_silence: Duration,
    /// The first wait after a failure is random up to this, each further one up to twice as long.
    pub backoff_base: Duration,
    /// No wait is longer than this.
    pub backoff_cap: Duration,
    /// A connection that lasted this long was a good one: the next failure is a first one again.
    pub healthy_after: Duration,
    /// Objects in a page of a paged list.
    pub page_size: u32,
    /// The longest event.
    pub max_event_bytes: usize,
    /// The largest page.
    pub max_page_bytes: usize,
    /// Whether streaming lists are tried at all.
    pub streaming_lists: bool,
    /// Changes that are kept for a subscriber before it must resync; for a tail, before it reads no
    /// further.
    pub queue: usize,
    /// A paged list of a tail is left once so many objects were handed over: what was before is
    /// worth only so much. A view is made of whole lists, whatever this says.
    pub most_listed: Option<usize>,
    /// The clock that changes are stamped with.
    pub clock: Clock,
    /// Makes waits and timeouts reproducible.
    pub seed: Option<u64>,
}

impl<K: TypedKind> StreamSpec<K> {
    /// All objects of the kind.
    pub fn new(name: &'static str) -> Self {
        Self::of(name, K::RESOURCE)
    }
}

impl StreamSpec<PartialObjectMeta> {
    /// The metadata of all objects of any resource.
    pub fn metadata(name: &'static str, resource: Resource) -> Self {
        Self::of(name, resource)
    }
}

impl<K: Kind> StreamSpec<K> {
    fn of(name: &'static str, resource: Resource) -> Self {
        Self {
            name,
            resource,
            namespace: None,
            label_selector: None,
            field_selector: None,
            annotations: Vec::new(),
            options: StreamOptions::default(),
            kind: PhantomData,
        }
    }

    /// Only objects of this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Only objects whose labels satisfy this.
    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.label_selector = Some(selector.into());
        self
    }

    /// Only objects whose fields satisfy this.
    #[must_use]
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.field_selector = Some(selector.into());
        self
    }

    /// Keeps these annotations.
    #[must_use]
    pub fn keep_annotations<T: Into<String>>(mut self, keys: impl IntoIterator<Item = T>) -> Self {
        self.annotations.extend(keys.into_iter().map(Into::into));
        self
    }

    /// Is so patient.
    #[must_use]
    pub fn options(mut self, options: StreamOptions) -> Self {
        self.options = options;
        self
    }

    pub(crate) fn accept(is_list: bool) -> &'static str {
        match (K::FORM, is_list) {
            (Form::Whole, _) => "application/json",
            (Form::Metadata, false) => {
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
            }
            (Form::Metadata, true) => {
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
            }
        }
    }

    /// The path and query of one page of a list.
    pub(crate) fn page(&self, limit: u32, next: &str) -> String {
        let mut query = self.target();
        push(&mut query, "limit", &limit.to_string());
        if !next.is_empty() {
            push(&mut query, "continue", next);
        }
        query
    }

    /// The path and query of a watch from a version on.
    pub(crate) fn watch(&self, from: &ResourceVersion, timeout: Duration) -> String {
        let mut query = self.target();
        push(&mut query, "watch", "true");
        push(&mut query, "allowWatchBookmarks", "true");
        push(&mut query, "resourceVersion", &from.to_string());
        push(&mut query, "timeoutSeconds", &timeout.as_secs().to_string());
        query
    }

    /// The path and query of a streaming list that becomes a watch. Without a version it begins
    /// with the newest state.
    pub(crate) fn streaming_list(&self, timeout: Duration) -> String {
        let mut query = self.target();
        push(&mut query, "watch", "true");
        push(&mut query, "allowWatchBookmarks", "true");
        push(&mut query, "sendInitialEvents", "true");
        push(&mut query, "resourceVersionMatch", "NotOlderThan");
        push(&mut query, "timeoutSeconds", &timeout.as_secs().to_string());
        query
    }

    fn target(&self) -> String {
        let Resource {
            group,
            version,
            plural,
        } = &self.resource;
        let mut target = if group.is_empty() {
            format!("/api/{version}")
        } else {
            format!("/apis/{group}/{version}")
        };
        if let Some(namespace) = &self.namespace {
            target.push_str("/namespaces/");
            push_encoded(&mut target, namespace);
        }
        target.push('/');
        target.push_str(plural);
        if let Some(selector) = &self.label_selector {
            push(&mut target, "labelSelector", selector);
        }
        if let Some(selector) = &self.field_selector {
            push(&mut target, "fieldSelector", selector);
        }
        target
    }
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self {
            watch_timeout: Duration::from_mins(4),
            answer_timeout: Duration::from_secs(30),
            list_silence: Duration::from_mins(1),
            watch_silence: Duration::from_secs(150),
            backoff_base: Duration::from_millis(800),
            backoff_cap: Duration::from_secs(30),
            healthy_after: Duration::from_secs(10),
            page_size: 500,
            max_event_bytes: 4 << 20,
            max_page_bytes: 256 << 20,
            streaming_lists: true,
            queue: 4_096,
            most_listed: None,
            clock: Clock::system(),
            seed: None,
        }
    }
}

/// Appends a parameter to a path or query.
fn push(target: &mut String, name: &str, value: &str) {
    target.push(if target.contains('?') { '&' } else { '?' });
    target.push_str(name);
    target.push('=');
    push_encoded(target, value);
}

fn push_encoded(target: &mut String, value: &str) {
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                target.push(char::from(byte));
            }
            _ => write!(target, "%{byte:02X}").expect("a String takes all that is written"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubevitals_model::{DaemonSet, Pod};

    #[test]
    fn paths_and_queries_are_as_the_server_wants_them() {
        let pods = StreamSpec::<Pod>::new("pods")
            .namespace("a b/c")
            .labels("app in (x,y),!z")
            .fields("spec.nodeName=n&1");
        assert_eq!(
            pods.page(500, "tok="),
            "/api/v1/namespaces/a%20b%2Fc/pods?labelSelector=app%20in%20%28x%2Cy%29%2C%21z\
             &fieldSelector=spec.nodeName%3Dn%261&limit=500&continue=tok%3D"
        );
        let sets = StreamSpec::<DaemonSet>::new("daemonsets");
        assert_eq!(sets.page(500, ""), "/apis/apps/v1/daemonsets?limit=500");
        assert_eq!(
            sets.watch(&"77".into(), Duration::from_mins(5)),
            "/apis/apps/v1/daemonsets?watch=true&allowWatchBookmarks=true&resourceVersion=77&timeoutSeconds=300"
        );
        assert_eq!(
            sets.streaming_list(Duration::from_secs(9)),
            "/apis/apps/v1/daemonsets?watch=true&allowWatchBookmarks=true&sendInitialEvents=true\
             &resourceVersionMatch=NotOlderThan&timeoutSeconds=9"
        );
    }

    #[test]
    fn metadata_is_asked_for_as_such() {
        assert_eq!(StreamSpec::<Pod>::accept(true), "application/json");
        assert_eq!(
            StreamSpec::<PartialObjectMeta>::accept(true),
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        );
        let leases = Resource::new("coordination.k8s.io", "v1", "leases");
        let spec = StreamSpec::metadata("leases", leases);
        assert_eq!(
            spec.page(1, ""),
            "/apis/coordination.k8s.io/v1/leases?limit=1"
        );
    }
}
