//! Text for `kubectl logs`: plausible lines, computed from the pod and the time alone.

use std::fmt::Write;
use std::sync::Arc;

use kubevitals_model::Clock;

use crate::api::context::ApiContext;
use crate::api::resources;
use crate::objects::{LogRequest, PodLogs, Resource};
use crate::store::join_key;

/// Seconds between two lines.
const LINE_INTERVAL_SECONDS: i64 = 10;
/// Limit of lines; a real kubelet rotates logs too.
const MAX_LINES: u64 = 1_000;

pub(super) struct SimulatedLogs {
    context: Arc<ApiContext>,
    clock: Clock,
}

impl SimulatedLogs {
    pub(super) fn new(context: Arc<ApiContext>, clock: Clock) -> Self {
        Self { context, clock }
    }
}

impl PodLogs for SimulatedLogs {
    fn read(&self, request: &LogRequest<'_>) -> Option<String> {
        let key = join_key(request.namespace, request.pod);
        let pod = self.context.store.get(Resource::Pods, &key)?;
        let pod = pod.value(resources::info(Resource::Pods));
        let containers = pod.pointer("/spec/containers")?.as_array()?;
        let mut names = containers
            .iter()
            .filter_map(|container| container.get("name")?.as_str());
        let container = match request.container {
            Some(requested) => names.find(|name| *name == requested)?,
            None => names.next()?,
        };
        if request.previous {
            return Some(String::new());
        }
        let started: kubevitals_model::Timestamp =
            pod.pointer("/status/startTime")?.as_str()?.parse().ok()?;
        let alive = (self.clock.now().unix_seconds() - started.unix_seconds()).max(0);
        let written = u64::try_from(alive / LINE_INTERVAL_SECONDS).unwrap_or(0) + 1;
        let shown = request
            .tail_lines
            .unwrap_or(MAX_LINES)
            .min(MAX_LINES)
            .min(written);
        let mut text = String::new();
        for line in written - shown..written {
            let at = i64::try_from(line)
                .unwrap_or(i64::MAX)
                .saturating_mul(LINE_INTERVAL_SECONDS * 1_000);
            let at = started.unix_millis().saturating_add(at);
            let at = kubevitals_model::Timestamp::from_unix_millis(at).rfc3339_millis();
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{at} {container}: request {line} served");
        }
        Some(text)
    }
}
