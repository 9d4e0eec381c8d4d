#![expect(
    clippy::needless_pass_by_value,
    clippy::unnecessary_wraps,
    reason = "helpers take and return what the tests write"
)]

use serde_json::{Value, json};

use super::*;

fn context() -> StepContext<'static> {
    StepContext {
        host_ip: Some("10.0.0.1"),
        now: Time("2026-01-01T00:00:00Z".parse().unwrap()),
        monotonic: Duration::from_secs(100),
        overwrite_interval: Duration::from_secs(10),
    }
}

fn watched(more: Value) -> Arc<WatchedPod> {
    let mut pod = json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "u1", "resourceVersion": "5", "generation": 1},
        "spec": {"containers": [], "terminationGracePeriodSeconds": 20},
        "status": {"phase": "Pending"},
    });
    for part in ["metadata", "status"] {
        let own = pod[part].as_object_mut().unwrap();
        own.extend(more[part].as_object().cloned().unwrap_or_default());
    }
    Arc::new(WatchedPod::new(serde_json::from_value(pod).unwrap()).unwrap())
}

fn runtime(id: &PodId, phase: &str, is_terminated: bool) -> Option<RuntimePod> {
    Some(RuntimePod {
        id: id.clone(),
        status: PodStatus {
            phase: Some(phase.to_owned()),
            ..PodStatus::default()
        },
        is_terminated,
    })
}

fn entry(api: Option<Arc<WatchedPod>>) -> Entry {
    let id = watched(json!({})).id();
    let mut entry = Entry::new(id);
    entry.last.clone_from(&api);
    entry.api = api;
    entry
}

#[test]
fn a_new_pod_is_synced_and_its_status_written() {
    let api = watched(json!({}));
    let mut entry = entry(Some(Arc::clone(&api)));
    assert_eq!(
        entry.next_step(&context()),
        Step::Sync(Arc::clone(&api.pod))
    );
    entry.synced = Some(Arc::clone(&api.pod));
    assert_eq!(entry.next_step(&context()), Step::Wait);
    entry.runtime = runtime(&entry.id, "Running", false);
    let Step::WriteStatus(status) = entry.next_step(&context()) else {
        panic!("no status");
    };
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert_eq!(status.observed_generation, Some(1));
    // A label is work for the runtime, a change of the status is none.
    entry.api = Some(watched(json!({"status": {"message": "x"}})));
    assert!(matches!(entry.next_step(&context()), Step::WriteStatus(_)));
    entry.api = Some(watched(json!({"metadata": {"labels": {"a": "b"}}})));
    assert!(matches!(entry.next_step(&context()), Step::Sync(_)));
}

#[test]
fn a_deletion_ends_the_pod_before_the_object() {
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:09Z", "deletionGracePeriodSeconds": 9}});
    let mut entry = entry(Some(watched(deleted.clone())));
    entry.runtime = runtime(&entry.id, "Running", false);
    assert_eq!(
        entry.next_step(&context()),
        Step::Terminate(Duration::from_secs(9))
    );
    entry.grace = Some(Duration::from_secs(9));
    assert!(
        matches!(entry.next_step(&context()), Step::WriteStatus(status) if status.phase.as_deref() == Some("Running"))
    );
    // A shorter grace arrives.
    let mut shorter = deleted.clone();
    shorter["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    entry.api = Some(watched(shorter));
    assert_eq!(entry.next_step(&context()), Step::Terminate(MIN_GRACE));
    entry.grace = Some(MIN_GRACE);
    entry.runtime = runtime(&entry.id, "Running", true);
    let Step::WriteStatus(status) = entry.next_step(&context()) else {
        panic!("no status");
    };
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    // Only once the API server has the terminal phase is anything removed.
    let mut ended = deleted;
    ended["status"] = json!({"phase": "Failed"});
    entry.api = Some(watched(ended));
    assert_eq!(entry.next_step(&context()), Step::Remove);
    entry.runtime = None;
    assert_eq!(entry.next_step(&context()), Step::Delete);
    entry.deleted = Some(Duration::from_secs(95));
    assert_eq!(
        entry.next_step(&context()),
        Step::WaitFor(Duration::from_secs(55))
    );
    entry.deleted = Some(Duration::from_secs(40));
    assert_eq!(entry.next_step(&context()), Step::Delete);
}

#[test]
fn a_pod_that_nobody_started_is_deleted_too() {
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:09Z"}});
    let entry = entry(Some(watched(deleted)));
    assert!(
        matches!(entry.next_step(&context()), Step::WriteStatus(status) if status.phase.as_deref() == Some("Failed"))
    );
}

#[test]
fn a_finished_pod_keeps_its_logs_until_it_is_deleted() {
    let mut entry = entry(Some(watched(
        json!({"status": {"phase": "Succeeded", "hostIP": "10.0.0.1", "startTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}}),
    )));
    entry.runtime = runtime(&entry.id, "Succeeded", true);
    assert_eq!(entry.next_step(&context()), Step::Wait);
    entry.runtime = None;
    assert_eq!(entry.next_step(&context()), Step::Wait);
    // A pod that a controller has failed is ended.
    entry.runtime = runtime(&entry.id, "Running", false);
    assert_eq!(
        entry.next_step(&context()),
        Step::Terminate(Duration::from_secs(20))
    );
}

#[test]
fn what_the_api_server_does_not_have_is_removed() {
    let mut orphan = entry(None);
    assert_eq!(orphan.next_step(&context()), Step::Forget);
    orphan.runtime = runtime(&orphan.id, "Running", false);
    assert_eq!(orphan.next_step(&context()), Step::Terminate(ORPHAN_GRACE));
    orphan.grace = Some(ORPHAN_GRACE);
    assert_eq!(orphan.next_step(&context()), Step::Wait);
    orphan.runtime = runtime(&orphan.id, "Failed", true);
    assert_eq!(orphan.next_step(&context()), Step::Remove);
    // A pod that was deleted by force has its own grace.
    let mut gone = entry(Some(watched(json!({}))));
    gone.api = None;
    gone.runtime = runtime(&gone.id, "Running", false);
    assert_eq!(
        gone.next_step(&context()),
        Step::Terminate(Duration::from_secs(20))
    );
}

#[test]
fn a_rejected_pod_fails_with_the_reason() {
    let mut entry = entry(Some(watched(json!({}))));
    entry.rejection = Some(("OutOfpods".to_owned(), "full".to_owned()));
    let Step::WriteStatus(status) = entry.next_step(&context()) else {
        panic!("no status");
    };
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.reason.as_deref(), Some("OutOfpods"));
    assert_eq!(status.message.as_deref(), Some("Pod was rejected: full"));
}

#[test]
fn an_overwritten_status_is_written_again_after_a_while() {
    let api = watched(json!({}));
    let mut entry = entry(Some(Arc::clone(&api)));
    entry.synced = Some(Arc::clone(&api.pod));
    entry.runtime = runtime(&entry.id, "Running", false);
    let Step::WriteStatus(status) = entry.next_step(&context()) else {
        panic!("no status");
    };
    entry.applied = Some((*status, Duration::from_secs(97)));
    assert_eq!(
        entry.next_step(&context()),
        Step::WaitFor(Duration::from_secs(7))
    );
    entry.applied.as_mut().unwrap().1 = Duration::from_secs(80);
    assert!(matches!(entry.next_step(&context()), Step::WriteStatus(_)));
}
