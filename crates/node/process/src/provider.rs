//! The capabilities of the runtime for the kubelet's endpoints: logs and port-forward here, the
//! rest in modules of their own.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kubevitals_container_logs::LogPath;
use kubevitals_kubelet_api::provider::{
    ContainerLogs, ContainerTarget, Duplex, LogOptions, PodLister, PodTarget, PortDialer,
    PortForward, ProviderFuture,
};
use kubevitals_kubelet_api::{Provider, ProviderError};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::instance::Instance;
use crate::probe::dial_error;
use crate::runtime::{PodHandle, ProcessRuntime};

mod attach;
mod exec;
mod stats;

pub(crate) use stats::Rates;

impl ProcessRuntime {
    /// All capabilities. `pods` is left to the virtual node, which has the objects of the API.
    pub fn provider(&self) -> Provider {
        let shared = Arc::new(self.clone());
        let mut provider = Provider::default();
        provider.running_pods = Some(Arc::clone(&shared) as _);
        provider.stats = Some(Arc::clone(&shared) as _);
        provider.logs = Some(Arc::clone(&shared) as _);
        provider.exec = Some(Arc::clone(&shared) as _);
        provider.attach = Some(Arc::clone(&shared) as _);
        provider.port_forward = Some(shared as _);
        provider
    }

    fn pod(&self, target: &PodTarget) -> Result<PodHandle, ProviderError> {
        self.find(&target.key, target.uid.as_ref()).ok_or_else(|| {
            ProviderError::NotFound(format!("pod {:?} not found", &**target.key.name()))
        })
    }

    /// The running instance of a container.
    fn running(&self, target: &ContainerTarget) -> Result<Arc<Instance>, ProviderError> {
        let handle = self.pod(&target.pod)?;
        let found = handle
            .shared
            .read()
            .instances
            .get(&target.container)
            .cloned();
        found.filter(|one| one.pid().is_some()).ok_or_else(|| {
            ProviderError::NotFound(format!("container not found ({:?})", target.container))
        })
    }
}

impl PodLister for ProcessRuntime {
    fn pods(&self) -> ProviderFuture<'_, Vec<Arc<Pod>>> {
        let pods = self
            .handles()
            .into_iter()
            .filter_map(|handle| {
                let shared = handle.shared.read();
                let mut pod = Pod::clone(&shared.pod);
                pod.status = Some(shared.status.clone());
                (!shared.is_terminated).then(|| Arc::new(pod))
            })
            .collect();
        Box::pin(async move { Ok(pods) })
    }
}

impl ContainerLogs for ProcessRuntime {
    fn logs(
        &self,
        container: ContainerTarget,
        options: LogOptions,
    ) -> ProviderFuture<'_, BoxStream<'static, io::Result<Bytes>>> {
        Box::pin(async move {
            self.inner.metrics.session("logs");
            let handle = self.pod(&container.pod)?;
            let name = &container.container;
            let (status, instance) = {
                let shared = handle.shared.read();
                let mains = shared.status.container_statuses.iter().flatten();
                let inits = shared.status.init_container_statuses.iter().flatten();
                let status = mains.chain(inits).find(|one| one.name == *name).cloned();
                (status, shared.instances.get(name).cloned())
            };
            let pod = handle.id.key.name();
            let status = status.ok_or_else(|| {
                ProviderError::NotFound(format!("container {name:?} not found in pod {:?}", &**pod))
            })?;
            let attempt = attempt_of(pod, &status, options.previous)?;
            let ended = match instance {
                Some(instance) if !options.previous => instance.ended(),
                // Without a sender it has ended.
                _ => watch::channel(true).1,
            };
            let key = &handle.id.key;
            let folder = format!("{}_{}_{}", key.namespace(), key.name(), handle.id.uid);
            let path = LogPath::new(self.inner.config.logs.join(folder).join(name), attempt);
            kubevitals_container_logs::read(path, options, ended)
                .await
                .map_err(|error| {
                    ProviderError::Internal(format!("read the log of container {name:?}: {error}"))
                })
        })
    }
}

/// Which instance's log to read, or why there is none, in the kubelet's words.
fn attempt_of(
    pod: &str,
    status: &ContainerStatus,
    is_previous: bool,
) -> Result<u32, ProviderError> {
    let name = &status.name;
    let state = status.state.clone().unwrap_or_default();
    let has_last = status
        .last_state
        .as_ref()
        .is_some_and(|one| one.terminated.is_some());
    let newest = u32::try_from(status.restart_count).unwrap_or(0);
    if is_previous {
        if !has_last {
            let text = format!("previous terminated container {name:?} in pod {pod:?} not found");
            return Err(ProviderError::InvalidInput(text));
        }
        // A container between two runs has its newest run as its last state.
        let is_between = state.waiting.is_some();
        return Ok(if is_between {
            newest
        } else {
            newest.saturating_sub(1)
        });
    }
    if state.running.is_some() || state.terminated.is_some() || has_last {
        return Ok(newest);
    }
    let reason = state.waiting.and_then(|one| one.reason).unwrap_or_default();
    let text = format!("container {name:?} in pod {pod:?} is waiting to start: {reason}");
    Err(ProviderError::InvalidInput(text))
}

/// Connects to ports of this host: pods have no network of their own.
struct Dialer;

impl PortForward for ProcessRuntime {
    fn port_forward(&self, pod: PodTarget) -> ProviderFuture<'_, Arc<dyn PortDialer>> {
        Box::pin(async move {
            self.inner.metrics.session("port_forward");
            let handle = self.pod(&pod)?;
            let is_running = !handle.shared.read().instances.is_empty();
            if !is_running {
                let text = format!("pod {:?} is not running", &**handle.id.key.name());
                return Err(ProviderError::InvalidInput(text));
            }
            Ok(Arc::new(Dialer) as Arc<dyn PortDialer>)
        })
    }
}

impl PortDialer for Dialer {
    fn dial(&self, port: u16) -> ProviderFuture<'_, Box<dyn Duplex>> {
        Box::pin(async move {
            let first = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let error = match TcpStream::connect(first).await {
                Ok(stream) => return Ok(Box::new(stream) as Box<dyn Duplex>),
                Err(error) => error,
            };
            match TcpStream::connect((Ipv6Addr::LOCALHOST, port)).await {
                Ok(stream) => Ok(Box::new(stream) as Box<dyn Duplex>),
                Err(_) => Err(ProviderError::Unavailable(dial_error(first, &error))),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(
        state: &serde_json::Value,
        last: &serde_json::Value,
        restarts: i32,
    ) -> ContainerStatus {
        serde_json::from_value(json!({
            "name": "c", "image": "", "imageID": "", "ready": false,
            "restartCount": restarts, "state": state, "lastState": last,
        }))
        .expect("a status")
    }

    #[test]
    fn the_right_instance_is_read_or_the_reason_is_given() {
        let ended = json!({"terminated": {"exitCode": 1, "containerID": "process://x"}});
        let running = json!({"running": {}});
        let backing_off = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        let creating = json!({"waiting": {"reason": "ContainerCreating"}});
        let none = json!({});
        for (state, last, restarts, is_previous, expected) in [
            (&running, &none, 0, false, Ok(0)),
            (&running, &ended, 2, false, Ok(2)),
            (&running, &ended, 2, true, Ok(1)),
            (&backing_off, &ended, 2, false, Ok(2)),
            (&backing_off, &ended, 2, true, Ok(2)),
            (&ended, &none, 0, false, Ok(0)),
            (&ended, &ended, 3, true, Ok(2)),
            (
                &running,
                &none,
                0,
                true,
                Err("previous terminated container \"c\" in pod \"p\" not found"),
            ),
            (
                &creating,
                &none,
                0,
                false,
                Err("container \"c\" in pod \"p\" is waiting to start: ContainerCreating"),
            ),
        ] {
            let found = attempt_of("p", &status(state, last, restarts), is_previous);
            match (found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected),
                (Err(error), Err(text)) => {
                    assert_eq!(error.to_string(), text);
                    assert_eq!(error.status(), http::StatusCode::BAD_REQUEST);
                }
                (found, expected) => panic!("{found:?} is not {expected:?}"),
            }
        }
    }
}
