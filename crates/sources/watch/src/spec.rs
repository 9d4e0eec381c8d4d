//! The specification of a watch: its resource, selectors, timeouts and limits.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{Clock, PartialObjectMeta, ResourceVersion};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::kind::{Form, Kind, Resource, TypedKind};

/// All but the unreserved characters of RFC 3986 are escaped.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The objects to watch.
#[derive(Debug, Clone)]
pub struct WatchSpec<K> {
    /// The name in logs, metrics and health checks: lower case, from a fixed set.
    pub name: &'static str,
    pub resource: Resource,
    pub namespace: Option<String>,
    pub label_selector: Option<String>,
    pub field_selector: Option<String>,
    /// The annotations to keep.
    pub annotations: Vec<String>,
    pub options: WatchOptions,
    kind: PhantomData<fn() -> K>,
}

/// Finds namespaces when they are needed.
#[derive(Clone)]
pub struct NamespaceSource(Arc<FindNamespaces>);

type FindNamespaces = dyn Fn() -> Pin<Box<dyn Future<Output = Vec<String>> + Send>> + Send + Sync;

/// Timeouts and limits of a watch.
#[derive(Debug, Clone)]
pub struct WatchOptions {
    /// The server ends each watch after a random time between this and twice this, so that watches
    /// spread over the servers again after one was down.
    pub watch_timeout: Duration,
    /// The timeout for the head of a response.
    pub response_timeout: Duration,
    /// The timeout between two chunks of a list, and for the end of the initial events of a
    /// streaming list.
    pub list_idle_timeout: Duration,
    /// The timeout for data on a watch that has received bookmarks, which servers send about every
    /// minute. Without bookmarks only the timeout of the watch applies.
    pub watch_idle_timeout: Duration,
    /// The first wait after a failure is random up to this, each further one up to twice as long.
    pub min_backoff: Duration,
    pub max_backoff: Duration,
    /// A connection that lasted this long resets the backoff.
    pub healthy_after: Duration,
    /// The number of objects in a page of a list.
    pub page_size: u32,
    pub max_event_bytes: usize,
    pub max_page_bytes: usize,
    /// Whether streaming lists are used where the server supports them.
    pub streaming_lists: bool,
    /// The capacity of a subscriber's queue, beyond which it must resync; for an event watcher, the
    /// capacity beyond which it stops reading.
    pub queue: usize,
    /// The number of objects after which an event watcher truncates a paged list: old events are of
    /// little use. A cache is always made of complete lists.
    pub max_listed: Option<usize>,
    /// The namespaces that are listed by themselves, up to the same number of objects, after a list
    /// was truncated: a list is in the order of namespaces, and the last ones would be missing.
    pub wanted_namespaces: Option<NamespaceSource>,
    /// The source of the time of receipt.
    pub clock: Clock,
    /// Makes waits and timeouts reproducible in tests.
    pub seed: Option<u64>,
}

impl NamespaceSource {
    pub fn new<F: Future<Output = Vec<String>> + Send + 'static>(
        find: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(move || Box::pin(find())))
    }

    pub(crate) async fn find(&self) -> Vec<String> {
        (self.0)().await
    }
}

impl fmt::Debug for NamespaceSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamespaceSource").finish_non_exhaustive()
    }
}

impl<K: TypedKind> WatchSpec<K> {
    pub fn new(name: &'static str) -> Self {
        Self::of(name, K::RESOURCE)
    }
}

impl WatchSpec<PartialObjectMeta> {
    /// The metadata of the objects of any resource.
    pub fn metadata(name: &'static str, resource: Resource) -> Self {
        Self::of(name, resource)
    }
}

impl<K: Kind> WatchSpec<K> {
    fn of(name: &'static str, resource: Resource) -> Self {
        Self {
            name,
            resource,
            namespace: None,
            label_selector: None,
            field_selector: None,
            annotations: Vec::new(),
            options: WatchOptions::default(),
            kind: PhantomData,
        }
    }

    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.label_selector = Some(selector.into());
        self
    }

    #[must_use]
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.field_selector = Some(selector.into());
        self
    }

    /// Keeps these annotations; all others are skipped.
    #[must_use]
    pub fn keep_annotations<T: Into<String>>(mut self, keys: impl IntoIterator<Item = T>) -> Self {
        self.annotations.extend(keys.into_iter().map(Into::into));
        self
    }

    #[must_use]
    pub fn options(mut self, options: WatchOptions) -> Self {
        self.options = options;
        self
    }

    pub(crate) fn accept(is_list: bool) -> &'static str {
        match (K::FORM, is_list) {
            // Servers that do not write protobuf, such as the simulated one, choose JSON.
            (Form::Whole, _) if K::PROTOBUF.is_some() => {
                "application/vnd.kubernetes.protobuf,application/json"
            }
            (Form::Whole, _) => "application/json",
            (Form::Metadata, false) => {
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
            }
            (Form::Metadata, true) => {
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
            }
        }
    }

    /// Returns the path and query of one page of a list.
    pub(crate) fn page(&self, limit: u32, next: &str) -> String {
        page_query(self.target(), limit, next)
    }

    /// Returns the path and query of a page of one namespace.
    pub(crate) fn page_of(&self, namespace: &str, limit: u32, next: &str) -> String {
        page_query(self.target_in(Some(namespace)), limit, next)
    }

    /// Returns the path and query of a watch from a version.
    pub(crate) fn watch(&self, from: &ResourceVersion, timeout: Duration) -> String {
        let mut query = self.target();
        push(&mut query, "watch", "true");
        push(&mut query, "allowWatchBookmarks", "true");
        push(&mut query, "resourceVersion", &from.to_string());
        push(&mut query, "timeoutSeconds", &timeout.as_secs().to_string());
        query
    }

    /// Returns the path and query of a streaming list, which continues as a watch. Without a
    /// version it starts with the newest state.
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
        self.target_in(self.namespace.as_deref())
    }

    fn target_in(&self, namespace: Option<&str>) -> String {
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
        if let Some(namespace) = namespace {
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

impl Default for WatchOptions {
    fn default() -> Self {
        Self {
            watch_timeout: Duration::from_mins(4),
            response_timeout: Duration::from_secs(30),
            list_idle_timeout: Duration::from_mins(1),
            watch_idle_timeout: Duration::from_secs(150),
            min_backoff: Duration::from_millis(800),
            max_backoff: Duration::from_secs(30),
            healthy_after: Duration::from_secs(10),
            page_size: 500,
            max_event_bytes: 4 << 20,
            max_page_bytes: 256 << 20,
            streaming_lists: true,
            queue: 4_096,
            max_listed: None,
            wanted_namespaces: None,
            clock: Clock::system(),
            seed: None,
        }
    }
}

fn page_query(mut query: String, limit: u32, next: &str) -> String {
    push(&mut query, "limit", &limit.to_string());
    if !next.is_empty() {
        push(&mut query, "continue", next);
    }
    query
}

/// Appends a parameter to a path or query.
fn push(target: &mut String, name: &str, value: &str) {
    target.push(if target.contains('?') { '&' } else { '?' });
    target.push_str(name);
    target.push('=');
    push_encoded(target, value);
}

fn push_encoded(target: &mut String, value: &str) {
    target.extend(utf8_percent_encode(value, UNRESERVED));
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubevitals_model::{DaemonSet, Pod};

    #[test]
    fn paths_and_queries_are_percent_encoded() {
        let pods = WatchSpec::<Pod>::new("pods")
            .namespace("a b/c")
            .labels("app in (x,y),!z")
            .fields("spec.nodeName=n&1");
        assert_eq!(
            pods.page(500, "tok="),
            "/api/v1/namespaces/a%20b%2Fc/pods?labelSelector=app%20in%20%28x%2Cy%29%2C%21z\
             &fieldSelector=spec.nodeName%3Dn%261&limit=500&continue=tok%3D"
        );
        let sets = WatchSpec::<DaemonSet>::new("daemonsets");
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
    fn metadata_is_requested_as_partial_objects() {
        assert_eq!(WatchSpec::<Pod>::accept(true), "application/json");
        assert_eq!(
            WatchSpec::<PartialObjectMeta>::accept(true),
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        );
        let leases = Resource::new("coordination.k8s.io", "v1", "leases");
        let spec = WatchSpec::metadata("leases", leases);
        assert_eq!(
            spec.page(1, ""),
            "/apis/coordination.k8s.io/v1/leases?limit=1"
        );
    }
}
