//! The provider over a host made of files.
#![expect(clippy::unwrap_used, reason = "helpers fail by panicking")]

mod logs;
mod provider;

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubevitals_host::fixture::{Driver, FixtureHost, Runtime, Values};
use kubevitals_host::{
    CgroupVersion, HostError, HostMetrics, HostOptions, HostReader, HostStats, LogNames, Names,
    Sampler, SamplerOptions,
};
use kubevitals_host_provider::HostPods;
use kubevitals_model::{SteppedClock, Timestamp};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A regression fails by this deadline instead of hanging.
const DEADLINE: Duration = Duration::from_mins(1);

const UID: &str = "b37f14a9-3bf4-458b-8cfd-e3c6a7a61b4a";
const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

struct TestNode {
    folder: TempDir,
    host: FixtureHost,
    stats: HostStats,
    clock: SteppedClock,
    stop: oneshot::Sender<()>,
    sampler: JoinHandle<Result<(), HostError>>,
}

impl TestNode {
    /// A node with the pod `web` of the container `app`.
    fn start(pods: Option<&HostPods>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let host = FixtureHost::create(folder.path(), CgroupVersion::V2).unwrap();
        let pod = Driver::Systemd.pod_path("", UID);
        host.write_cgroup(&pod, Values::default()).unwrap();
        let container = Driver::Systemd.container_name(Runtime::Containerd, ID);
        host.write_cgroup(&format!("{pod}/{container}"), Values::default())
            .unwrap();
        host.name_container(("default", "web", UID), "app", ID)
            .unwrap();
        let options = HostOptions {
            paths: host.paths(),
            ..HostOptions::new("node-1")
        };
        let logs = LogNames::new(options.paths.log.clone());
        let names = match pods {
            Some(pods) => Names::new(Some(pods.table()), None),
            None => Names::new(None, Some(logs)),
        };
        let clock = SteppedClock::new(Timestamp::from_unix_millis(1_800_000_000_000));
        let reader = HostReader::open(options, names, clock.clock()).unwrap();
        let interval = SamplerOptions {
            interval: Duration::from_hours(1),
            min_age: Duration::from_secs(5),
        };
        let metrics = HostMetrics::unregistered();
        let (sampler, stats) = Sampler::new(reader, interval, clock.clock(), metrics);
        let (stop, stopped) = oneshot::channel::<()>();
        let sampler = tokio::spawn(sampler.run(async {
            let _ = stopped.await;
        }));
        Self {
            folder,
            host,
            stats,
            clock,
            stop,
            sampler,
        }
    }

    /// Ends the sampler.
    async fn stop(self) {
        drop(self.stop);
        self.sampler.await.unwrap().unwrap();
    }

    fn root(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a log of the container.
    fn write_log(&self, instance: u32, text: &str) {
        let folder = format!("var/log/pods/default_web_{UID}/app");
        let path = self.root().join(folder).join(format!("{instance}.log"));
        let line = format!("2026-01-01T00:00:00Z stdout F {text}\n");
        std::fs::write(path, line).unwrap();
    }
}

/// The pod `web`; the state of its container is given.
#[expect(clippy::needless_pass_by_value, reason = "calls are shorter")]
fn pod(state: serde_json::Value, last_state: serde_json::Value, restarts: u32) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "default", "uid": UID, "managedFields": []},
        "spec": {"containers": [{"name": "app", "image": "app:1"}]},
        "status": {
            "startTime": "2026-01-01T00:00:00Z",
            "containerStatuses": [{
                "name": "app", "image": "app:1", "imageID": "", "ready": true,
                "restartCount": restarts, "containerID": format!("containerd://{ID}"),
                "state": state, "lastState": last_state,
            }],
        },
    }))
    .unwrap()
}

fn running() -> serde_json::Value {
    json!({"running": {"startedAt": "2026-01-01T00:00:01Z"}})
}
