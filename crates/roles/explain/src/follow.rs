//! Watches a pod until it is ready or never will be.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_cli::RunError;
use kubevitals_model::{Clock, Event, Pod};
use kubevitals_transitions::{Arrival, Existing, Output, PodRecord, Tracker, TrackerConfig};
use kubevitals_watch::{Change, KubeTransport, ObjectEvent, Update, WatchClient, WatchSpec};

use crate::api::ApiReader;
use crate::nodes::Nodes;
use crate::{ExplainedPod, PodName, lookup};

/// Events arrive after the states that they explain.
const LINGER: Duration = Duration::from_secs(2);

const TICK_INTERVAL: Duration = Duration::from_millis(200);

/// Waits for a pod, which need not exist yet.
pub(crate) async fn until_settled<I>(
    api: &ApiReader,
    config: &kube::Config,
    clock: &Clock,
    pod: &PodName,
    interrupt: impl Future<Output = I>,
) -> Result<ExplainedPod, RunError> {
    // Reports missing permission, where a watch would retry forever.
    lookup::get_pod(api, pod).await?;
    let mut record = watch(config, clock, pod, interrupt).await?;
    let node = record.pod.summary.node.clone();
    let node = Nodes::default().get(api, node.as_ref()).await;
    record.node_created = node.created;
    Ok(ExplainedPod {
        record,
        pool: node.pool,
    })
}

async fn watch<I>(
    config: &kube::Config,
    clock: &Clock,
    pod: &PodName,
    interrupt: impl Future<Output = I>,
) -> Result<PodRecord, RunError> {
    let transport = KubeTransport::new(config.clone()).map_err(RunError::runtime)?;
    let server = WatchClient::new(transport);
    let PodName { namespace, name } = pod;
    let pods = WatchSpec::<Pod>::new("pods").fields(format!("metadata.name={name}"));
    let pods = server.reflector(pods.namespace(namespace));
    let events = format!("involvedObject.kind=Pod,involvedObject.name={name}");
    let events = WatchSpec::<Event>::new("events").fields(events);
    let events = server.reflector(events.namespace(namespace));
    let (mut pod_updates, mut event_updates) = (pods.subscribe(), events.subscribe());
    tokio::pin!(interrupt);
    let mut ticks = tokio::time::interval(TICK_INTERVAL);
    let mut tracker = Tracker::new(TrackerConfig {
        linger: Some(LINGER),
        existing: Existing::All,
        ..TrackerConfig::default()
    });
    let mut startup: Option<Arc<PodRecord>> = None;
    loop {
        let mut take = |output: Output| {
            if let Output::Startup(record) = output {
                startup = Some(record);
            }
        };
        let mut is_interrupted = false;
        tokio::select! {
            Some(update) = pod_updates.next() => take_pod(&mut tracker, update, &mut take),
            Some(update) = event_updates.next() => take_event(&mut tracker, update, &mut take),
            _ = ticks.tick() => tracker.advance(clock.now(), &mut take),
            _ = &mut interrupt => {
                is_interrupted = true;
                tracker.finish(&mut take);
            }
        }
        if let Some(record) = startup {
            return Ok(Arc::unwrap_or_clone(record).as_of(clock.now()));
        }
        if is_interrupted {
            return Err(RunError::runtime(format!("pod {pod} does not exist yet")));
        }
    }
}

fn take_pod(tracker: &mut Tracker, update: Update<Pod>, take: &mut impl FnMut(Output)) {
    match update {
        Update::Resync(all) => {
            for pod in &all.objects {
                tracker.pod(pod, Arrival::Listed, None, take);
            }
        }
        Update::Change(Change {
            event, received, ..
        }) => match event {
            ObjectEvent::Added(pod) | ObjectEvent::Modified { now: pod, .. } => {
                tracker.pod(&pod, Arrival::Live, Some(received), take);
            }
            ObjectEvent::Deleted(pod) => tracker.deleted(&pod, Arrival::Live, Some(received), take),
        },
    }
}

fn take_event(tracker: &mut Tracker, update: Update<Event>, take: &mut impl FnMut(Output)) {
    match update {
        Update::Resync(all) => {
            for event in &all.objects {
                tracker.event(event, take);
            }
        }
        Update::Change(Change { event, .. }) => match event {
            ObjectEvent::Added(event) | ObjectEvent::Modified { now: event, .. } => {
                tracker.event(&event, take);
            }
            ObjectEvent::Deleted(_) => {}
        },
    }
}
