//! Keeps a store in step with streams of pods and nodes.

use std::sync::Arc;

use kubevitals_model::{NodeName, Timestamp};
use kubevitals_watch::{Node, PodLike, Resync, Subscription, Update, What};

use crate::store::UsageStore;

/// Changes that are taken in before what they mean is published: a burst publishes a node once, and
/// nobody waits long.
const MAX_AT_ONCE: usize = 1_024;

/// Tells a store of all pods and of every change, until the stream ends. `clock` gives the time of
/// publications.
///
/// A pod that has ended for good has no usage any more: to the store it is gone, whether the stream
/// leaves it out or not.
pub async fn follow_pods<P: PodLike>(
    mut pods: Subscription<P>,
    store: &UsageStore,
    clock: impl Fn() -> Timestamp,
) {
    let apply = |update: Update<P>| match update {
        Update::Resync(Resync { mut objects, .. }) => {
            objects.retain(|pod| !pod.brief().phase.is_final());
            store.pods_replaced(&objects);
        }
        Update::Change(change) => match change.what {
            What::Added(pod) | What::Modified { now: pod, .. } if pod.brief().phase.is_final() => {
                store.pod_deleted(&*pod);
            }
            What::Added(pod) | What::Modified { now: pod, .. } => store.pod_applied(&pod),
            What::Deleted(pod) => store.pod_deleted(&*pod),
        },
    };
    while let Some(update) = pods.next().await {
        apply(update);
        for _ in 1..MAX_AT_ONCE {
            match pods.try_next() {
                Some(update) => apply(update),
                None => break,
            }
        }
        store.flush(clock());
    }
}

/// Tells a store of all nodes and of every change, until the stream ends. `clock` gives the time of
/// publications.
pub async fn follow_nodes(
    mut nodes: Subscription<Node>,
    store: &UsageStore,
    clock: impl Fn() -> Timestamp,
) {
    while let Some(update) = nodes.next().await {
        match update {
            Update::Resync(Resync { objects, .. }) => {
                let facts = objects
                    .iter()
                    .map(|node| (&node.identity.name, &node.labels, &node.identity.uid));
                store.nodes_replaced(facts);
            }
            Update::Change(change) => match change.what {
                What::Added(node) | What::Modified { now: node, .. } => store.node_applied(
                    &NodeName::new(Arc::clone(&node.identity.name)),
                    &node.labels,
                    &node.identity.uid,
                ),
                What::Deleted(node) => store.node_deleted(&node.identity.name),
            },
        }
        store.flush(clock());
    }
}
