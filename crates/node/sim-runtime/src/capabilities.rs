//! What the endpoints of a kubelet show of simulated pods.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kubevitals_kubelet_api::ProviderError;
use kubevitals_kubelet_api::provider::{
    ContainerLogs, ContainerTarget, Exec, ExecRequest, ExitStatus, LogOptions, LogStream,
    PodLister, ProviderFuture, Session, Stats, Streams,
};
use kubevitals_model::node_stats::NodeStats;
use kubevitals_model::{Clock, Moment, Timestamp};
use tokio::io::AsyncWriteExt as _;
use tokio::time::sleep;

use crate::pod::SimPod;
use crate::{SimRuntime, usage};

/// Lines of a log that are made at once.
const CHUNK: u64 = 256;

const SECOND: Duration = Duration::from_secs(1);

/// A log: line number n is written n seconds after the start.
struct LogReader {
    runtime: SimRuntime,
    target: ContainerTarget,
    started: Timestamp,
    next: u64,
    follow: bool,
    timestamps: bool,
    /// Bytes that may still be written.
    left: u64,
}

impl PodLister for SimRuntime {
    fn pods(&self) -> ProviderFuture<'_, Vec<Arc<Pod>>> {
        Box::pin(async {
            let pods = self.inner.pods.lock();
            let running = pods.values().filter(|pod| pod.ended.is_none());
            let mut pods: Vec<Arc<Pod>> = running
                .map(|pod| {
                    let mut object = Pod::clone(&pod.pod);
                    object.status = Some(pod.report().status);
                    Arc::new(object)
                })
                .collect();
            pods.sort_by_cached_key(|pod| {
                (pod.metadata.namespace.clone(), pod.metadata.name.clone())
            });
            Ok(pods)
        })
    }
}

impl Stats for SimRuntime {
    fn stats(&self, _only_cpu_and_memory: bool) -> ProviderFuture<'_, Arc<NodeStats>> {
        Box::pin(async {
            let mut pods: Vec<SimPod> = self.inner.pods.lock().values().cloned().collect();
            pods.sort_by(|one, other| one.id.key.cmp(&other.id.key));
            let now = self.inner.config.clock.moment();
            let (config, started) = (&self.inner.config, self.inner.started);
            Ok(Arc::new(usage::node_stats(config, started, &pods, now)))
        })
    }
}

impl ContainerLogs for SimRuntime {
    fn logs(
        &self,
        container: ContainerTarget,
        options: LogOptions,
    ) -> ProviderFuture<'_, BoxStream<'static, io::Result<Bytes>>> {
        Box::pin(async move {
            let pod = self.container(&container)?;
            let name = &container.container;
            if options.previous {
                return Err(ProviderError::InvalidInput(format!(
                    "previous terminated container {name:?} in pod {:?} not found",
                    container.pod.key.name()
                )));
            }
            let Some(started) = pod.started else {
                return Err(ProviderError::InvalidInput(format!(
                    "container {name:?} in pod {:?} is waiting to start: ContainerCreating",
                    container.pod.key.name()
                )));
            };
            if options.stream == LogStream::Stderr {
                return Ok(stream::empty().boxed());
            }
            let written = lines(&pod, started, &self.inner.config.clock);
            let since = options.since.and_then(|since| since.since(started.wall));
            let since = since.map_or(0, |age| age.as_secs() + u64::from(age.subsec_nanos() > 0));
            let tail = options
                .tail_lines
                .map_or(0, |tail| written.saturating_sub(tail));
            let reader = LogReader {
                runtime: self.clone(),
                started: started.wall,
                next: since.max(tail),
                follow: options.follow,
                timestamps: options.timestamps,
                left: options.limit_bytes.unwrap_or(u64::MAX),
                target: container,
            };
            Ok(stream::unfold(reader, LogReader::next).boxed())
        })
    }
}

impl LogReader {
    async fn next(mut self) -> Option<(io::Result<Bytes>, Self)> {
        loop {
            if self.left == 0 {
                return None;
            }
            let pod = self.runtime.container(&self.target).ok()?;
            let written = lines(&pod, pod.started?, &self.runtime.inner.config.clock);
            if self.next < written {
                let end = written.min(self.next.saturating_add(CHUNK));
                let text = self.text(end);
                self.next = end;
                return Some((Ok(text), self));
            }
            if !self.follow || pod.ended.is_some() {
                return None;
            }
            sleep(SECOND).await;
        }
    }

    fn text(&mut self, end: u64) -> Bytes {
        let mut text = String::new();
        let key = self.target.pod.key.clone();
        for number in self.next..end {
            if self.timestamps {
                let at = self.started.checked_add(Duration::from_secs(number));
                let _ = write!(
                    text,
                    "{} ",
                    at.unwrap_or(self.started).rfc3339_millis().as_str()
                );
            }
            let container = &self.target.container;
            let _ = writeln!(
                text,
                "line {number} of {}/{}/{container}",
                key.namespace(),
                key.name()
            );
        }
        let kept = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(text.len());
        self.left -= u64::try_from(kept).unwrap_or(self.left);
        Bytes::from(text).slice(..kept)
    }
}

impl Exec for SimRuntime {
    fn exec(&self, request: ExecRequest) -> ProviderFuture<'_, Session> {
        Box::pin(async move {
            let pod = self.container(&request.target)?;
            if pod.started.is_none() || pod.ended.is_some() {
                return Err(ProviderError::Conflict(format!(
                    "container {:?} is not running",
                    request.target.container
                )));
            }
            let command = request.command;
            let session: Session = Box::new(move |streams| Box::pin(echo(command, streams)));
            Ok(session)
        })
    }
}

/// Writes the command and then whatever is read. `exit N` ends with that code.
async fn echo(command: Vec<String>, streams: Streams) -> Result<ExitStatus, ProviderError> {
    let failed = |error: io::Error| ProviderError::Other(Box::new(error));
    let code = match command.as_slice() {
        [program, code] if program == "exit" => code.parse().unwrap_or(255),
        _ => 0,
    };
    if let Some(mut stdout) = streams.stdout {
        let line = format!("{}\n", command.join(" "));
        stdout.write_all(line.as_bytes()).await.map_err(failed)?;
        if let Some(mut stdin) = streams.stdin {
            tokio::io::copy(&mut stdin, &mut stdout)
                .await
                .map_err(failed)?;
        }
        stdout.shutdown().await.map_err(failed)?;
    }
    Ok(ExitStatus { code })
}

impl SimRuntime {
    /// Finds the pod of a container.
    fn container(&self, target: &ContainerTarget) -> Result<SimPod, ProviderError> {
        let (key, name) = (&target.pod.key, &target.container);
        let pod = self.inner.find(key, target.pod.uid.as_ref());
        let pod = pod.ok_or_else(|| {
            ProviderError::NotFound(format!(
                "pod \"{}/{}\" not found",
                key.namespace(),
                key.name()
            ))
        })?;
        if pod
            .containers()
            .iter()
            .all(|container| container.name != *name)
        {
            return Err(ProviderError::NotFound(format!(
                "container {name:?} not found in pod \"{}/{}\"",
                key.namespace(),
                key.name()
            )));
        }
        Ok(pod)
    }
}

/// The number of lines that a container has written.
fn lines(pod: &SimPod, started: Moment, clock: &Clock) -> u64 {
    let end = pod
        .ended
        .map_or_else(|| clock.moment().monotonic, |at| at.monotonic);
    end.saturating_sub(started.monotonic).as_secs() + 1
}
