//! From the samples of a scrape to the series of a node and its containers.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{
    ContainerKey, ContainerKeyRef, ContainerSample, NodeBatch, NodeSample, Uid,
};

use super::pod_table::Container;
use super::{Context, NodeState, ScrapeFailure};
use crate::metrics::Dropped;
use crate::series::{SampleKind, Series};
use crate::store::Ingested;

/// Limit of containers of unknown pods that are held for a node: more than a node starts between
/// two updates from the API, and all of a usual node while the first list of pods is in progress.
const MAX_HELD: usize = 512;

/// The samples of a scrape that are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    All,
    /// Those of containers without usage.
    Missing,
}

impl Scope {
    fn includes(self, series: &Series) -> bool {
        self == Self::All || !series.is_served()
    }
}

impl NodeState {
    /// Ingests the samples of a scrape, and publishes the node if any is new.
    pub(crate) fn ingest(
        &mut self,
        uid: &Uid,
        batch: &NodeBatch,
        scope: Scope,
        cx: &Context<'_>,
    ) -> Ingested {
        let mut ingested = Ingested::default();
        if !self.is_registered_as(uid) {
            cx.metrics.dropped(Dropped::UnknownNode, batch.len());
            return ingested;
        }
        ingested.known_node = true;
        self.failure = None;
        self.update_cached(cx.metrics);
        self.scraped_at = Some(cx.eval.monotonic());
        let mut is_node_new = false;
        if scope.includes(&self.usage) {
            let node_sample = self.usage.record(&as_container(&batch.node), &cx.eval);
            is_node_new = matches!(node_sample, SampleKind::New { .. });
            cx.metrics.sample(node_sample, self.usage.rate_state());
        }
        ingested.new_sample = is_node_new;
        ingested.count_coverage(self.usage.rate_state());
        self.pods.prefetch();
        let mut index = 0;
        for (key, sample) in batch.containers() {
            match self.pods.find_near(key.pod, index) {
                Some(found) => {
                    index = found;
                    self.record(found, key.container, sample, scope, &mut ingested, cx);
                }
                None => self.hold(key, sample, &mut ingested, cx),
            }
        }
        for (uid, container, sample) in batch.containers_by_uid() {
            match self.pods.find_uid(uid, index) {
                Some(found) => {
                    index = found;
                    self.record(found, container, sample, scope, &mut ingested, cx);
                }
                None => ingested.unknown += 1,
            }
        }
        ingested.new_sample |= ingested.new > 0;
        for (reason, count) in [
            (Dropped::UnknownPod, ingested.unknown),
            (Dropped::Foreign, ingested.foreign),
            (Dropped::Overflow, ingested.overflowed),
        ] {
            if count > 0 {
                cx.metrics.dropped(reason, count);
            }
        }
        self.is_settled |= !ingested.awaits_samples();
        self.account(cx.metrics);
        // Held samples are new, but not published.
        if is_node_new || ingested.new > 0 || self.is_dirty {
            self.publish(cx);
        }
        ingested
    }

    /// Records a sample of a container whose pod is bound to this node.
    fn record(
        &mut self,
        index: usize,
        name: &str,
        sample: &ContainerSample,
        scope: Scope,
        ingested: &mut Ingested,
        cx: &Context<'_>,
    ) {
        let siblings = self.pods.containers(index);
        let position = siblings.iter().position(|sibling| *sibling.name == *name);
        if position.is_none() && sample.cpu.is_none() && sample.memory.is_none() {
            // A kubelet reports the start of a container before any usage.
            cx.metrics
                .sample(SampleKind::WithoutCpu, Series::default().rate_state());
            return;
        }
        let series = match position {
            Some(position) => self
                .pods
                .containers_mut(index)
                .get_mut(position)
                .map(|own| &mut own.series),
            None => self.pods.add_container(
                index,
                Container {
                    name: cx.names.intern(name),
                    series: Series::default(),
                },
            ),
        };
        let Some(series) = series else {
            ingested.overflowed += 1;
            return;
        };
        if !scope.includes(series) {
            ingested.count_coverage(series.rate_state());
            return;
        }
        let kind = series.record(sample, &cx.eval);
        cx.metrics.sample(kind, series.rate_state());
        ingested.count_coverage(series.rate_state());
        match kind {
            SampleKind::New { .. } => ingested.new += 1,
            SampleKind::Repeated => ingested.repeated += 1,
            SampleKind::Older => ingested.older += 1,
            SampleKind::WithoutCpu | SampleKind::InvalidTime => {}
        }
    }

    /// Holds a sample of a pod that the API has not bound to this node. Unless the pod is bound to
    /// another node or has terminated, the kubelet may be ahead of the API.
    fn hold(
        &mut self,
        key: ContainerKeyRef<'_>,
        sample: &ContainerSample,
        ingested: &mut Ingested,
        cx: &Context<'_>,
    ) {
        let is_foreign = cx.directory.get(key.pod).is_some_and(|pod| {
            let pod = pod.summary();
            let is_elsewhere = pod
                .node
                .as_ref()
                .is_some_and(|node| **node != *self.name.as_str());
            is_elsewhere || pod.phase.is_final()
        });
        if is_foreign {
            ingested.foreign += 1;
            return;
        }
        let kind = if let Some(series) = self.held.get_mut(key.as_dyn()) {
            series.record(sample, &cx.eval)
        } else if self.held.len() < MAX_HELD {
            let mut series = Series::default();
            let kind = series.record(sample, &cx.eval);
            // Interned, since the name of the container is kept once its pod is known.
            let key = ContainerKey::new(
                cx.names.intern(key.pod.namespace),
                key.pod.name,
                cx.names.intern(key.container),
            );
            self.held.insert(key, series);
            kind
        } else {
            ingested.overflowed += 1;
            return;
        };
        ingested.held += 1;
        ingested.new_sample |= matches!(kind, SampleKind::New { .. });
    }

    /// Records a failed scrape. Samples and usage stay.
    pub(crate) fn scrape_failed(
        &mut self,
        uid: &Uid,
        reason: Arc<str>,
        retry_in: Option<Duration>,
        cx: &Context<'_>,
    ) {
        if !self.is_registered_as(uid) {
            return;
        }
        let now = cx.eval.monotonic();
        let since = self.failure.as_ref().map_or(now, |failure| failure.since);
        self.failure = Some(ScrapeFailure {
            reason,
            since,
            next_attempt: retry_in.map(|wait| now.saturating_add(wait)),
        });
        self.is_settled = true;
        self.account(cx.metrics);
        self.update_cached(cx.metrics);
    }
}

/// Converts the sample of a node to that of a container without a start time.
fn as_container(node: &NodeSample) -> ContainerSample {
    ContainerSample {
        cpu: node.cpu,
        memory: node.memory,
        swap: node.swap,
        ephemeral_storage: node.ephemeral_storage,
        cpu_now: node.cpu_now,
        started: None,
    }
}
