//! Notices that the resource versions of the cluster went back.
//!
//! A watch shows versions in increasing order, and a list is never older than the watch before it.
//! After a restore of etcd both are: states with lower versions are then newer than known ones, and
//! checkpoints of before cover nothing.

use kubevitals_model::Pod;
use kubevitals_watch::{Change, ObjectEvent, Origin};

#[derive(Debug, Default)]
pub(crate) struct VersionOrder {
    /// The version of the last state from the watch.
    newest: Option<u64>,
}

impl VersionOrder {
    /// Whether a change has a lower version than one before it. A deletion has the last known
    /// state, and says nothing.
    pub(crate) fn went_back(&mut self, change: &Change<Pod>) -> bool {
        let version = |pod: &Pod| pod.summary.identity.resource_version.as_number();
        let (went_back, now) = match &change.event {
            ObjectEvent::Added(now) => (false, version(now)),
            ObjectEvent::Modified { before, now } => {
                let (before, now) = (version(before), version(now));
                (
                    before.zip(now).is_some_and(|(before, now)| now < before),
                    now,
                )
            }
            ObjectEvent::Deleted(_) => return false,
        };
        if change.origin == Origin::Relist {
            if went_back {
                self.newest = None;
            }
            return went_back;
        }
        let is_older = self
            .newest
            .zip(now)
            .is_some_and(|(newest, now)| now < newest);
        self.newest = now.or(self.newest);
        went_back || is_older
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kubevitals_model::Timestamp;
    use kubevitals_watch::{Decoder, decode_object};

    use super::*;

    fn pod(version: u64) -> Arc<Pod> {
        let text = format!("{{\"metadata\":{{\"name\":\"a\",\"resourceVersion\":\"{version}\"}}}}");
        Arc::new(decode_object(text.as_bytes(), &Decoder::default()).unwrap())
    }

    fn change(origin: Origin, event: ObjectEvent<Pod>) -> Change<Pod> {
        Change {
            event,
            origin,
            received: Timestamp::from_unix_millis(0),
        }
    }

    fn modified(before: u64, now: u64) -> ObjectEvent<Pod> {
        ObjectEvent::Modified {
            before: pod(before),
            now: pod(now),
        }
    }

    #[test]
    fn increasing_versions_do_not_go_back() {
        let mut order = VersionOrder::default();
        for change in [
            change(Origin::Live, ObjectEvent::Added(pod(10))),
            // A list is in no order.
            change(Origin::Relist, ObjectEvent::Added(pod(4))),
            change(Origin::Relist, modified(5, 9)),
            change(Origin::Live, ObjectEvent::Deleted(pod(3))),
            change(Origin::Live, modified(4, 11)),
        ] {
            assert!(!order.went_back(&change), "{change:?}");
        }
    }

    #[test]
    fn a_restored_cluster_is_noticed_once() {
        let mut order = VersionOrder::default();
        assert!(!order.went_back(&change(Origin::Live, ObjectEvent::Added(pod(900)))));
        assert!(order.went_back(&change(Origin::Live, ObjectEvent::Added(pod(100)))));
        assert!(!order.went_back(&change(Origin::Live, ObjectEvent::Added(pod(101)))));
        assert!(order.went_back(&change(Origin::Relist, modified(101, 50))));
        assert!(!order.went_back(&change(Origin::Live, ObjectEvent::Added(pod(60)))));
    }
}
