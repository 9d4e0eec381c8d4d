//! A pod that is followed until it is ready or never will be.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_cli::{RunError, forward_signals};
use kubevitals_transitions::{Arrival, Existing, Output, PodRecord, Tracker, TrackerConfig};
use kubevitals_watch::{Change, Event, KubeTransport, Pod, Server, StreamSpec, Update, What};

use super::api::Api;
use super::target::Target;
use super::{Explained, as_of, look, now};

/// Events come after the states that they explain.
const LINGER: Duration = Duration::from_secs(2);

/// How often it is looked whether they have had their time.
const TICK: Duration = Duration::from_millis(200);

/// Waits for a pod, which need not exist yet.
pub(super) async fn until_settled(
    api: &Api,
    config: &kube::Config,
    target: &Target,
) -> Result<Explained, RunError> {
    // Asked once before: who may not read pods is told so, where a stream would try again for ever.
    look::pod(api, target).await?;
    let record = watch(config, target).await?;
    let pool = look::pool(api, record.pod.brief.node.as_deref()).await;
    Ok(Explained {
        record,
        pool: pool.ok().flatten(),
    })
}

async fn watch(config: &kube::Config, target: &Target) -> Result<PodRecord, RunError> {
    let transport = KubeTransport::new(config.clone()).map_err(RunError::runtime)?;
    let server = Server::new(transport);
    let name = &target.name;
    let pods = StreamSpec::<Pod>::new("pods").fields(format!("metadata.name={name}"));
    let pods = server.watch(pods.namespace(target.namespace()));
    let events = format!("involvedObject.kind=Pod,involvedObject.name={name}");
    let events = StreamSpec::<Event>::new("events").fields(events);
    let events = server.watch(events.namespace(target.namespace()));
    let (mut pod_updates, mut event_updates) = (pods.subscribe(), events.subscribe());
    let mut signals = forward_signals().map_err(RunError::runtime)?;
    let mut ticks = tokio::time::interval(TICK);
    let mut tracker = Tracker::new(TrackerConfig {
        linger: Some(LINGER),
        existing: Existing::All,
        ..TrackerConfig::default()
    });
    let mut told: Option<Arc<PodRecord>> = None;
    loop {
        let mut take = |output: Output| {
            if let Output::Startup(record) = output {
                told = Some(record);
            }
        };
        let mut is_interrupted = false;
        tokio::select! {
            Some(update) = pod_updates.next() => take_pod(&mut tracker, update, &mut take),
            Some(update) = event_updates.next() => take_event(&mut tracker, update, &mut take),
            _ = ticks.tick() => tracker.advance(now(), &mut take),
            _ = signals.recv() => {
                is_interrupted = true;
                tracker.finish(&mut take);
            }
        }
        if let Some(record) = told {
            return Ok(as_of(Arc::unwrap_or_clone(record), now()));
        }
        if is_interrupted {
            return Err(RunError::runtime(format!("pod {target} has not been seen")));
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
        Update::Change(Change { what, received, .. }) => match what {
            What::Added(pod) | What::Modified { now: pod, .. } => {
                tracker.pod(&pod, Arrival::Live, Some(received), take);
            }
            What::Deleted(pod) => tracker.deleted(&pod, Arrival::Live, Some(received), take),
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
        Update::Change(Change { what, .. }) => match what {
            What::Added(event) | What::Modified { now: event, .. } => tracker.event(&event, take),
            What::Deleted(_) => {}
        },
    }
}
