use futures_util::StreamExt as _;
use kubevitals_kubelet_api::ProviderError;
use kubevitals_kubelet_api::provider::{
    ContainerTarget, ExecRequest, LogOptions, PodTarget, StreamOptions, Streams,
};
use kubevitals_model::{SteppedClock, Timestamp};
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;

use super::*;

const START: Timestamp = Timestamp::from_unix_millis(1_700_000_000_000);

fn runtime() -> (SimRuntime, SteppedClock, mpsc::Receiver<RuntimeChange>) {
    let clock = SteppedClock::new(START);
    let (changes, receiver) = mpsc::channel(64);
    let config = SimConfig {
        node_name: "sim".to_owned(),
        cores: 4,
        memory: 8 << 30,
        start_delay: Duration::from_secs(2),
        stop_delay: Duration::from_secs(1),
        clock: clock.clock(),
    };
    (SimRuntime::new(config, changes), clock, receiver)
}

fn pod(annotations: serde_json::Value) -> Arc<Pod> {
    let pod = json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "u", "annotations": annotations},
        "spec": {"containers": [{"name": "c", "image": "i",
                                 "resources": {"requests": {"cpu": "200m", "memory": "64Mi"}}}]},
    });
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn target() -> ContainerTarget {
    ContainerTarget {
        pod: PodTarget {
            key: PodKey::new("default", "web"),
            uid: None,
        },
        container: "c".to_owned(),
    }
}

/// Phases and reasons of events, in order.
fn advance(runtime: &SimRuntime) -> Vec<String> {
    let (changes, _) = runtime.inner.advance(runtime.inner.config.clock.moment());
    let text = |change| match change {
        RuntimeChange::Status(pod) => pod.status.phase.unwrap_or_default(),
        RuntimeChange::Event(event) => event.reason.to_owned(),
    };
    changes.into_iter().map(text).collect()
}

#[tokio::test]
async fn a_pod_starts_after_the_delay_and_ends_within_its_grace() {
    let (runtime, clock, _receiver) = runtime();
    runtime.sync_pod(pod(json!({}))).await.unwrap();
    assert_eq!(advance(&runtime), ["Pulled", "Pending"]);
    clock.advance(Duration::from_millis(1_999));
    assert!(advance(&runtime).is_empty());
    clock.advance(Duration::from_millis(1));
    assert_eq!(advance(&runtime), ["Created", "Started", "Running"]);
    // A new version of the object starts nothing again.
    runtime.sync_pod(pod(json!({"a": "b"}))).await.unwrap();
    assert!(advance(&runtime).is_empty());
    let id = id(&pod(json!({}))).unwrap();
    runtime
        .terminate_pod(&id, Duration::from_mins(1))
        .await
        .unwrap();
    clock.advance(Duration::from_secs(1));
    assert_eq!(advance(&runtime), ["Killing", "Succeeded"]);
    assert!(PodRuntime::pods(&runtime).await.unwrap()[0].is_terminated);
    runtime.remove_pod(&id).await.unwrap();
    assert!(matches!(
        runtime.remove_pod(&id).await,
        Err(RuntimeError::NotFound(_))
    ));
    let gone = runtime.terminate_pod(&id, Duration::ZERO).await;
    assert!(matches!(gone, Err(RuntimeError::NotFound(_))));
}

#[tokio::test]
async fn a_job_ends_by_itself_with_its_code() {
    let (runtime, clock, _receiver) = runtime();
    let annotations =
        json!({"sim.kubevitals.io/run-for": "30", "sim.kubevitals.io/exit-code": "3"});
    runtime.sync_pod(pod(annotations)).await.unwrap();
    clock.advance(Duration::from_secs(2));
    advance(&runtime);
    clock.advance(Duration::from_secs(30));
    assert_eq!(advance(&runtime), ["Failed"]);
    let pods = PodRuntime::pods(&runtime).await.unwrap();
    let container = &pods[0].status.container_statuses.as_ref().unwrap()[0];
    let terminated = container
        .state
        .as_ref()
        .unwrap()
        .terminated
        .as_ref()
        .unwrap();
    assert_eq!(
        (terminated.exit_code, terminated.reason.as_deref()),
        (3, Some("Error"))
    );
}

#[tokio::test]
async fn usage_is_a_function_of_time() {
    use kubevitals_kubelet_api::provider::Stats as _;
    let (runtime, clock, _receiver) = runtime();
    runtime.sync_pod(pod(json!({}))).await.unwrap();
    assert!(
        runtime.stats(false).await.unwrap().pods.is_empty(),
        "it does not run yet"
    );
    clock.advance(Duration::from_secs(2));
    advance(&runtime);
    // A whole period later the mean is exact.
    clock.advance(Duration::from_secs(120));
    let stats = runtime.stats(false).await.unwrap();
    assert_eq!(runtime.stats(true).await.unwrap(), stats);
    let cpu = stats.pods[0].containers[0].usage.cpu.as_ref().unwrap();
    // Half of 200m for 120 s.
    assert!(
        cpu.total.get().abs_diff(12_000_000_000) < 1_000,
        "{:?}",
        cpu.total
    );
    let memory = stats.usage.memory.as_ref().unwrap();
    assert!(
        memory.working_set.unwrap().count().abs_diff(48 << 20) < 16,
        "{memory:?}"
    );
}

async fn log(runtime: &SimRuntime, options: LogOptions) -> Result<String, ProviderError> {
    use kubevitals_kubelet_api::provider::ContainerLogs as _;
    let mut lines = runtime.logs(target(), options).await?;
    let mut text = Vec::new();
    while let Some(chunk) = lines.next().await {
        text.extend_from_slice(&chunk.unwrap());
    }
    Ok(String::from_utf8(text).unwrap())
}

#[tokio::test]
async fn logs_have_a_line_per_second() {
    let (runtime, clock, _receiver) = runtime();
    let missing = log(&runtime, LogOptions::default()).await;
    assert!(matches!(missing, Err(ProviderError::NotFound(_))));
    runtime.sync_pod(pod(json!({}))).await.unwrap();
    let waiting = log(&runtime, LogOptions::default()).await;
    assert!(matches!(waiting, Err(ProviderError::InvalidInput(_))));
    clock.advance(Duration::from_secs(2));
    advance(&runtime);
    clock.advance(Duration::from_secs(600));
    assert_eq!(
        log(&runtime, LogOptions::default())
            .await
            .unwrap()
            .lines()
            .count(),
        601
    );
    let tail = LogOptions {
        tail_lines: Some(1),
        timestamps: true,
        ..LogOptions::default()
    };
    let last = log(&runtime, tail).await.unwrap();
    assert_eq!(last, "2023-11-14T22:23:22.000Z line 600 of default/web/c\n");
    let since = LogOptions {
        since: START.checked_add(Duration::from_secs(600)),
        limit_bytes: Some(10),
        ..LogOptions::default()
    };
    assert_eq!(log(&runtime, since).await.unwrap(), "line 598 o");
}

#[tokio::test]
async fn exec_echoes_and_ends_with_a_code() {
    use kubevitals_kubelet_api::provider::Exec as _;
    let (runtime, clock, _receiver) = runtime();
    runtime.sync_pod(pod(json!({}))).await.unwrap();
    clock.advance(Duration::from_secs(2));
    advance(&runtime);
    let request = ExecRequest {
        target: target(),
        command: vec!["exit".to_owned(), "7".to_owned()],
        streams: StreamOptions::default(),
    };
    let session = runtime.exec(request).await.unwrap();
    let (stdout, mut read) = tokio::io::duplex(64);
    let (_resize, sizes) = mpsc::channel(1);
    let ended = session(Streams {
        stdin: Some(Box::new(&b"hello"[..])),
        stdout: Some(Box::new(stdout)),
        stderr: None,
        resize: sizes,
    });
    assert_eq!(ended.await.unwrap().code, 7);
    let mut text = String::new();
    read.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "exit 7\nhello");
}
