//! Publication of a node to all publishers.

use std::sync::Arc;

use super::scratch::Scratch;
use super::{Context, NodeState};
use crate::metrics::UsageMetrics;
use crate::publisher::{NodeUsage, UsagePublisher};

/// The number of objects with usage in the last publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Published {
    pub(crate) nodes: u32,
    pub(crate) pods: u32,
    pub(crate) containers: u32,
}

impl NodeState {
    /// Whether the node itself has usage.
    pub(crate) fn is_served(&self) -> bool {
        self.published.nodes > 0
    }

    /// Publishes the node if its pods or the node itself have changed.
    pub(crate) fn flush(&mut self, cx: &Context<'_>) {
        if self.is_dirty {
            self.publish(cx);
        }
    }

    pub(super) fn publish(&mut self, cx: &Context<'_>) {
        self.is_dirty = false;
        if !self.is_registered() {
            return;
        }
        let usage = self.usage.serve(&cx.eval);
        let mut published = Published {
            nodes: usage.is_some().into(),
            ..Published::default()
        };
        Scratch::with(|scratch| {
            for index in 0..self.pods.len() {
                if let Some((pod, containers)) = self.pods.entry_mut(index) {
                    let served = scratch.add(pod, containers, &cx.eval);
                    published.pods += u32::from(served > 0);
                    published.containers += served;
                }
            }
            let usage = NodeUsage {
                node: &self.name,
                labels: &self.labels,
                usage: usage.as_ref(),
                pods: scratch.pods(),
                published: cx.eval.wall,
            };
            for publisher in cx.publishers {
                publisher.publish(&usage);
            }
        });
        cx.metrics.publications.inc();
        self.set_published(published, cx.metrics);
    }

    pub(super) fn withdraw(
        &mut self,
        metrics: &UsageMetrics,
        publishers: &[Arc<dyn UsagePublisher>],
    ) {
        self.set_published(Published::default(), metrics);
        for publisher in publishers {
            publisher.withdraw(&self.name);
        }
    }

    fn set_published(&mut self, published: Published, metrics: &UsageMetrics) {
        metrics.published(self.published, published);
        self.published = published;
        self.update_cached(metrics);
    }

    /// Updates the gauge of nodes that are served although their last scrape failed.
    pub(super) fn update_cached(&mut self, metrics: &UsageMetrics) {
        let is_cached = self.failure.is_some() && self.published != Published::default();
        match (self.is_cached, is_cached) {
            (false, true) => metrics.cached_nodes.inc(),
            (true, false) => metrics.cached_nodes.dec(),
            _ => return,
        };
        self.is_cached = is_cached;
    }
}
