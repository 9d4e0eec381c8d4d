//! Two hooks as one.

use std::sync::Arc;
use std::time::Duration;

use super::{
    Context, ControllerMetrics, ControllerProvider, InformerId, InformerMetrics, InformerProvider,
    LeaderElection, ReconcileResult, ReflectorMetrics, ReflectorProvider, RequestContext,
    RequestHead, StreamKind, StreamReport, Streams, WorkqueueMetrics, WorkqueueProvider,
};
use crate::Call;

/// Calls both, in order. The macro `hook!` implements the hooks with one method.
pub(crate) struct Both<T: ?Sized> {
    pub(crate) first: Arc<T>,
    pub(crate) second: Arc<T>,
}

impl RequestContext for Both<dyn RequestContext> {
    fn capture(&self, request: &RequestHead<'_>, context: &mut Context) {
        self.first.capture(request, context);
        self.second.capture(request, context);
    }
}

impl Streams for Both<dyn Streams> {
    fn opened(&self, call: &Call, kind: StreamKind) {
        self.first.opened(call, kind);
        self.second.opened(call, kind);
    }

    fn received(&self, call: &Call, kind: StreamKind, events: u64, bytes: u64) {
        self.first.received(call, kind, events, bytes);
        self.second.received(call, kind, events, bytes);
    }

    fn ended(&self, call: &Call, report: &StreamReport) {
        self.first.ended(call, report);
        self.second.ended(call, report);
    }
}

impl ReflectorProvider for Both<dyn ReflectorProvider> {
    fn reflector(&self, name: &str) -> Arc<dyn ReflectorMetrics> {
        Arc::new(Both {
            first: self.first.reflector(name),
            second: self.second.reflector(name),
        })
    }
}

impl ReflectorMetrics for Both<dyn ReflectorMetrics> {
    fn list_started(&self) {
        self.first.list_started();
        self.second.list_started();
    }

    fn list_finished(&self, duration: Duration, items: u64) {
        self.first.list_finished(duration, items);
        self.second.list_finished(duration, items);
    }

    fn watch_started(&self) {
        self.first.watch_started();
        self.second.watch_started();
    }

    fn watch_finished(&self, duration: Duration, items: u64, short: bool) {
        self.first.watch_finished(duration, items, short);
        self.second.watch_finished(duration, items, short);
    }

    fn last_resource_version(&self, version: u64) {
        self.first.last_resource_version(version);
        self.second.last_resource_version(version);
    }
}

impl InformerProvider for Both<dyn InformerProvider> {
    fn informer(&self, id: &InformerId) -> Arc<dyn InformerMetrics> {
        Arc::new(Both {
            first: self.first.informer(id),
            second: self.second.informer(id),
        })
    }
}

impl InformerMetrics for Both<dyn InformerMetrics> {
    fn processed(&self, latency: Duration) {
        self.first.processed(latency);
        self.second.processed(latency);
    }

    fn store_resource_version(&self, version: u64) {
        self.first.store_resource_version(version);
        self.second.store_resource_version(version);
    }
}

impl WorkqueueProvider for Both<dyn WorkqueueProvider> {
    fn queue(&self, name: &str) -> Arc<dyn WorkqueueMetrics> {
        Arc::new(Both {
            first: self.first.queue(name),
            second: self.second.queue(name),
        })
    }
}

impl WorkqueueMetrics for Both<dyn WorkqueueMetrics> {
    fn added(&self) {
        self.first.added();
        self.second.added();
    }

    fn taken(&self, waited: Duration) {
        self.first.taken(waited);
        self.second.taken(waited);
    }

    fn done(&self, worked: Duration) {
        self.first.done(worked);
        self.second.done(worked);
    }

    fn retried(&self) {
        self.first.retried();
        self.second.retried();
    }

    fn abandoned(&self, items: u64) {
        self.first.abandoned(items);
        self.second.abandoned(items);
    }

    fn in_progress(&self, unfinished: Duration, longest: Duration) {
        self.first.in_progress(unfinished, longest);
        self.second.in_progress(unfinished, longest);
    }
}

impl ControllerProvider for Both<dyn ControllerProvider> {
    fn controller(&self, name: &str) -> Arc<dyn ControllerMetrics> {
        Arc::new(Both {
            first: self.first.controller(name),
            second: self.second.controller(name),
        })
    }
}

impl ControllerMetrics for Both<dyn ControllerMetrics> {
    fn started(&self) {
        self.first.started();
        self.second.started();
    }

    fn finished(&self, result: ReconcileResult, duration: Duration) {
        self.first.finished(result, duration);
        self.second.finished(result, duration);
    }

    fn max_concurrent(&self, limit: u64) {
        self.first.max_concurrent(limit);
        self.second.max_concurrent(limit);
    }
}

impl LeaderElection for Both<dyn LeaderElection> {
    fn on(&self, name: &str) {
        self.first.on(name);
        self.second.on(name);
    }

    fn off(&self, name: &str) {
        self.first.off(name);
        self.second.off(name);
    }

    fn slowpath_exercised(&self, name: &str) {
        self.first.slowpath_exercised(name);
        self.second.slowpath_exercised(name);
    }
}
