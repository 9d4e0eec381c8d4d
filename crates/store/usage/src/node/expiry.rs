//! Removal of what is too old to be served.

use super::pod_table::Container;
use super::{Context, NodeState};
use crate::evaluation::Evaluation;
use crate::metrics::Dropped;
use crate::series::Series;

impl NodeState {
    /// Drops values beyond the staleness limit, and publishes the node if any was served.
    pub(crate) fn expire(&mut self, cx: &Context<'_>) {
        let eval = &cx.eval;
        // Nearly always: a node that is scraped has nothing that expires within half a minute.
        if eval.tick() < self.unexpired_until && !self.is_dirty {
            return;
        }
        if !self.held.is_empty() {
            let before = self.held.len();
            self.held.retain(|_, series| !series.is_stale(eval));
            let dropped = before - self.held.len();
            cx.metrics.dropped(Dropped::UnknownPod, dropped);
            self.shrink_held();
        }
        let has_expired = |container: &&Container| container.series.has_expired(eval);
        let expired = self.pods.all_containers().iter().filter(has_expired);
        let expired = expired.count();
        cx.metrics.expired.inc_by(expired as u64);
        let must_publish = expired > 0 || self.usage.has_expired(eval);
        let is_obsolete = |own: &Container| own.series.is_obsolete(eval);
        if self.pods.all_containers().iter().any(is_obsolete) {
            self.pods.retain_containers(|own| !is_obsolete(own));
        }
        self.schedule_expiry(eval);
        if must_publish || self.is_dirty {
            self.publish(cx);
        }
    }

    /// Computes until when nothing can expire. Samples from now on expire later.
    fn schedule_expiry(&mut self, eval: &Evaluation<'_>) {
        let containers = self.pods.all_containers().iter();
        let series = containers
            .map(|container| &container.series)
            .chain(self.held.values())
            .chain([&self.usage]);
        let oldest = series.filter_map(Series::oldest_value).min();
        self.unexpired_until = eval.fresh_until(oldest.unwrap_or(eval.tick()));
    }
}
