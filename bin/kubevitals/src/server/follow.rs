//! Keeps the usage store in sync with the reflectors of pods and nodes.

use std::sync::Arc;

use kubevitals_model::{Clock, Moment, Node, NodeName};
use kubevitals_scrape::NodeFilter;
use kubevitals_usage::UsageStore;
use kubevitals_watch::{ObjectEvent, PodKind, Resync, Subscription, Update};

/// The maximum number of changes between two flushes: a burst publishes a node once, and no change
/// waits long.
const MAX_BATCH: usize = 1_024;

/// Applies all pods and every change to the store, until the reflector ends.
pub(super) async fn follow_pods<P: PodKind>(
    mut pods: Subscription<P>,
    store: &UsageStore,
    clock: &Clock,
) {
    while let Some(update) = pods.next().await {
        apply_pods(update, store, clock.moment());
        for _ in 1..MAX_BATCH {
            match pods.try_next() {
                Some(update) => apply_pods(update, store, clock.moment()),
                None => break,
            }
        }
        store.flush(clock.moment());
    }
}

/// Applies all nodes and every change to the store, until the reflector ends.
pub(super) async fn follow_nodes(
    mut nodes: Subscription<Node>,
    filter: &NodeFilter,
    store: &UsageStore,
    clock: &Clock,
) {
    while let Some(update) = nodes.next().await {
        let now = clock.moment();
        apply_nodes(update, filter, store, now);
        store.flush(now);
    }
}

/// A pod that has ended has no usage any more: for the store it is gone, whether the reflector
/// still has it or not.
fn apply_pods<P: PodKind>(update: Update<P>, store: &UsageStore, now: Moment) {
    match update {
        Update::Resync(Resync { mut objects, .. }) => {
            objects.retain(|pod| !pod.summary().phase.is_final());
            store.pods_replaced(&objects, now);
        }
        Update::Change(change) => match change.event {
            ObjectEvent::Added(pod) | ObjectEvent::Modified { now: pod, .. }
                if pod.summary().phase.is_final() =>
            {
                store.pod_deleted(&*pod);
            }
            ObjectEvent::Added(pod) | ObjectEvent::Modified { now: pod, .. } => {
                store.pod_applied(&pod);
            }
            ObjectEvent::Deleted(pod) => store.pod_deleted(&*pod),
        },
    }
}

fn apply_nodes(update: Update<Node>, filter: &NodeFilter, store: &UsageStore, now: Moment) {
    match update {
        Update::Resync(Resync { objects, .. }) => {
            for node in &objects {
                apply_node(node, filter, store, now);
            }
            store.retain_nodes(objects.iter().map(|node| &*node.identity.name), now);
        }
        Update::Change(change) => match change.event {
            ObjectEvent::Added(node) | ObjectEvent::Modified { now: node, .. } => {
                apply_node(&node, filter, store, now);
            }
            ObjectEvent::Deleted(node) => {
                store.node_deleted(&node.identity.name, &node.identity.uid, now);
            }
        },
    }
}

fn apply_node(node: &Node, filter: &NodeFilter, store: &UsageStore, now: Moment) {
    let name = NodeName::new(Arc::clone(&node.identity.name));
    match filter.exclusion(node) {
        Some(reason) => store.node_excluded(&name, &node.identity.uid, &reason, now),
        None => store.node_applied(&name, &node.labels, &node.identity.uid),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kubevitals_model::{PodSummary, Timestamp};
    use kubevitals_usage::{Counts, UsageConfig};
    use kubevitals_watch::{Change, Decoder, Origin, ResyncCause, TypedKind, decode_object};

    use super::*;

    const NOW: Moment = Moment {
        wall: Timestamp::from_unix_millis(0),
        monotonic: Duration::ZERO,
    };

    fn store() -> UsageStore {
        UsageStore::new(UsageConfig::new(Duration::from_secs(15)))
    }

    fn object<K: TypedKind>(json: &str) -> Arc<K> {
        Arc::new(decode_object(json.as_bytes(), &Decoder::default()).unwrap())
    }

    fn pod(name: &str, phase: &str) -> Arc<PodSummary> {
        object(&format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"default","uid":"{name}"}},
                "spec":{{"nodeName":"n1"}},"status":{{"phase":"{phase}"}}}}"#
        ))
    }

    fn node(name: &str) -> Arc<Node> {
        object(&format!(
            r#"{{"metadata":{{"name":"{name}","uid":"{name}"}}}}"#
        ))
    }

    fn resync<K>(objects: Vec<Arc<K>>) -> Update<K> {
        let cause = ResyncCause::Subscribed;
        Update::Resync(Resync { cause, objects })
    }

    fn change<K>(event: ObjectEvent<K>) -> Update<K> {
        Update::Change(Change {
            event,
            origin: Origin::Live,
            received: NOW.wall,
        })
    }

    fn counts(store: &UsageStore) -> Counts {
        store.readiness(NOW).counts
    }

    fn apply_node_update(update: Update<Node>, store: &UsageStore) {
        apply_nodes(update, &NodeFilter::default(), store, NOW);
    }

    #[test]
    fn the_store_knows_the_pods_that_have_not_ended() {
        let store = store();
        let pods = || counts(&store).running_pods;
        apply_node_update(resync(vec![node("n1")]), &store);
        let (web, job) = (pod("web-0", "Running"), pod("job", "Failed"));
        apply_pods(resync(vec![Arc::clone(&web), job]), &store, NOW);
        assert_eq!(pods(), 1);
        let before = pod("web-1", "Running");
        apply_pods(change(ObjectEvent::Added(Arc::clone(&before))), &store, NOW);
        assert_eq!(pods(), 2);
        let now = pod("web-1", "Succeeded");
        apply_pods(change(ObjectEvent::Modified { before, now }), &store, NOW);
        assert_eq!(pods(), 1);
        apply_pods(change(ObjectEvent::Deleted(web)), &store, NOW);
        assert_eq!(pods(), 0);
    }

    #[test]
    fn the_store_knows_the_nodes_of_the_last_list_and_of_later_changes() {
        let store = store();
        let nodes = || counts(&store).nodes;
        apply_node_update(change(ObjectEvent::Added(node("n1"))), &store);
        apply_node_update(resync(vec![node("n2")]), &store);
        assert_eq!(nodes(), 1);
        let (before, now) = (node("n2"), node("n2"));
        apply_node_update(change(ObjectEvent::Modified { before, now }), &store);
        assert_eq!(nodes(), 1);
        apply_node_update(change(ObjectEvent::Deleted(node("n2"))), &store);
        assert_eq!(nodes(), 0);
    }

    #[test]
    fn the_store_knows_why_a_node_is_excluded() {
        let store = store();
        let excluded: Arc<Node> = object(
            r#"{"metadata":{"name":"n1","uid":"1","labels":{"kubevitals.io/scrape":"false"}}}"#,
        );
        apply_node_update(resync(vec![excluded, node("n2")]), &store);
        assert_eq!(
            (counts(&store).nodes, counts(&store).nodes_excluded),
            (1, 1)
        );
        assert_eq!(
            store.explain_node("n1", NOW).to_string(),
            r#"node n1 is not scraped: label kubevitals.io/scrape is "false""#
        );
        // The label is gone.
        apply_node_update(change(ObjectEvent::Added(node("n1"))), &store);
        assert_eq!(
            (counts(&store).nodes, counts(&store).nodes_excluded),
            (2, 0)
        );
    }
}
