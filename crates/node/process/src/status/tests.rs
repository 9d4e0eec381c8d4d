use serde_json::json;

use super::*;
use crate::state::{Failure, Running, Termination, Waiting};

fn pod(policy: &str, inits: &[(&str, bool)], mains: &[&str]) -> Pod {
    let init = |(name, sidecar): &(&str, bool)| {
        let mut one = json!({"name": name});
        if *sidecar {
            one["restartPolicy"] = json!("Always");
        }
        one
    };
    serde_json::from_value(json!({"spec": {
        "restartPolicy": policy,
        "initContainers": inits.iter().map(init).collect::<Vec<_>>(),
        "containers": mains.iter().map(|name| json!({"name": name})).collect::<Vec<_>>(),
    }}))
    .expect("a pod")
}

fn ended(code: i32) -> Ended {
    Ended {
        id: "old".to_owned(),
        code,
        signal: None,
        reason: if code == 0 { "Completed" } else { "Error" }.to_owned(),
        message: None,
        started_ms: Some(1000),
        finished_ms: 2000,
    }
}

/// A container by a short code: `-` waits, `r` runs, `R` is ready, `b` waits to run again after
/// code 1, a digit is an exit code.
fn set(state: &mut PodState, codes: &str) {
    for (one, code) in state.containers.iter_mut().zip(codes.chars()) {
        let running = |is_ready: bool| {
            Phase::Running(Running {
                id: "new".to_owned(),
                started_ms: 3000,
                is_started: is_ready,
                is_ready,
                is_up: true,
            })
        };
        match code {
            '-' => one.phase = Phase::Waiting(None),
            'r' => one.phase = running(false),
            'R' => one.phase = running(true),
            'b' => {
                one.end(ended(1));
                one.phase = Phase::Waiting(Some(Waiting {
                    reason: "CrashLoopBackOff".to_owned(),
                    message: "back-off".to_owned(),
                }));
            }
            digit => one.end(ended(
                i32::try_from(digit.to_digit(10).expect("a digit")).expect("small"),
            )),
        }
    }
}

fn status_of(pod: &Pod, codes: &str, change: impl FnOnce(&mut PodState)) -> PodStatus {
    let mut state = PodState::new(pod, 500);
    set(&mut state, codes);
    change(&mut state);
    pod_status(pod, &mut state, true, &[], 10_000)
}

/// A change of a state before its status is taken.
type Change = fn(&mut PodState);

#[test]
fn phases_follow_the_kubelets_rules() {
    let end = |state: &mut PodState| state.is_terminated = true;
    let keep = |_: &mut PodState| {};
    let two = |policy| pod(policy, &[], &["a", "b"]);
    let cases: Vec<(Pod, &str, Change, &str)> = vec![
        (two("Always"), "--", keep, "Pending"),
        (two("Always"), "R-", keep, "Pending"),
        (two("Always"), "Rr", keep, "Running"),
        (two("Always"), "R0", keep, "Running"),
        (two("Always"), "00", keep, "Running"),
        (two("Always"), "01", keep, "Running"),
        (two("Always"), "bb", keep, "Running"),
        (two("OnFailure"), "00", keep, "Succeeded"),
        (two("OnFailure"), "01", keep, "Running"),
        (two("OnFailure"), "0b", keep, "Running"),
        (two("Never"), "00", keep, "Succeeded"),
        (two("Never"), "01", keep, "Failed"),
        (two("Never"), "R1", keep, "Running"),
        // A pod that has ended will not restart anything.
        (two("Always"), "00", end, "Succeeded"),
        (two("Always"), "01", end, "Failed"),
        (two("Always"), "0b", end, "Failed"),
        (two("Always"), "--", end, "Failed"),
        (
            pod("Always", &[("i", false)], &["a"]),
            "r-",
            keep,
            "Pending",
        ),
        (
            pod("Always", &[("i", false)], &["a"]),
            "b-",
            keep,
            "Pending",
        ),
        (pod("Never", &[("i", false)], &["a"]), "1-", keep, "Failed"),
        (pod("Never", &[("i", false)], &["a"]), "0R", keep, "Running"),
        (pod("Never", &[("s", true)], &["a"]), "r-", keep, "Pending"),
        (pod("Never", &[("s", true)], &["a"]), "R0", keep, "Running"),
        (
            pod("Never", &[("s", true)], &["a"]),
            "00",
            keep,
            "Succeeded",
        ),
    ];
    for (pod, codes, change, expected) in cases {
        let status = status_of(&pod, codes, change);
        let policy = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.restart_policy.clone());
        assert_eq!(
            status.phase.as_deref(),
            Some(expected),
            "{policy:?} {codes}"
        );
    }
}

#[test]
fn a_terminal_phase_does_not_change_while_a_pod_ends() {
    let one = pod("Always", &[], &["a"]);
    let ending = |state: &mut PodState| {
        state.termination = Some(Termination {
            deadline_ms: 0,
            grace_seconds: 0,
        });
    };
    // Code 0 between two runs: Succeeded before and after the last file is gone.
    let between = |state: &mut PodState| {
        ending(state);
        state.containers[0].end(ended(0));
        state.containers[0].phase = Phase::Waiting(Some(Waiting {
            reason: "CrashLoopBackOff".to_owned(),
            message: String::new(),
        }));
    };
    let now = status_of(&one, "-", between);
    let after = status_of(&one, "-", |state| {
        between(state);
        state.is_terminated = true;
    });
    assert_eq!(now.phase.as_deref(), Some("Succeeded"));
    assert_eq!(after.phase, now.phase);
    // A run that is being started may still end in any way.
    let starting = status_of(&one, "1", |state| {
        ending(state);
        state.containers[0].phase = Phase::Starting {
            id: "next".to_owned(),
        };
    });
    assert_eq!(starting.phase.as_deref(), Some("Running"));
}

fn conditions_of(status: &PodStatus) -> Vec<String> {
    let text = |one: &PodCondition| {
        let reason = one.reason.as_deref().unwrap_or("-");
        let message = one.message.as_deref().unwrap_or("-");
        format!("{} {} {reason} {message}", one.type_, one.status)
    };
    status.conditions.iter().flatten().map(text).collect()
}

#[test]
fn conditions_have_the_kubelets_order_reasons_and_messages() {
    let two = pod("Always", &[], &["b", "a"]);
    let status = status_of(&two, "rR", |_| {});
    assert_eq!(
        conditions_of(&status),
        [
            "PodReadyToStartContainers True - -",
            "Initialized True - -",
            "Ready False ContainersNotReady containers with unready status: [b]",
            "ContainersReady False ContainersNotReady containers with unready status: [b]",
        ]
    );
    let names: Vec<String> = status
        .container_statuses
        .iter()
        .flatten()
        .map(|one| one.name.clone())
        .collect();
    assert_eq!(names, ["a", "b"], "sorted by name");
    let init = pod("Always", &[("z", false), ("s", true), ("y", false)], &["a"]);
    let status = status_of(&init, "0r--", |_| {});
    let found = conditions_of(&status);
    assert_eq!(
        found[1],
        "Initialized False ContainersNotInitialized containers with incomplete status: [s y]"
    );
    assert_eq!(
        found[3],
        "ContainersReady False ContainersNotReady containers with unready status: [s a]"
    );
    let names: Vec<String> = status
        .init_container_statuses
        .iter()
        .flatten()
        .map(|one| one.name.clone())
        .collect();
    assert_eq!(names, ["z", "s", "y"], "in the order of the specification");
    let waiting = status
        .container_statuses
        .iter()
        .flatten()
        .next()
        .and_then(|one| one.state.clone()?.waiting);
    assert_eq!(
        waiting.and_then(|one| one.reason).as_deref(),
        Some("PodInitializing")
    );
    let done = conditions_of(&status_of(&pod("Never", &[], &["a"]), "0", |_| {}));
    assert_eq!(
        done[1..],
        [
            "Initialized True PodCompleted -",
            "Ready False PodCompleted -",
            "ContainersReady False PodCompleted -"
        ]
    );
}

#[test]
fn readiness_gates_need_their_conditions() {
    let mut one = pod("Always", &[], &["a"]);
    let spec = one.spec.as_mut().expect("a spec");
    spec.readiness_gates =
        serde_json::from_value(json!([{"conditionType": "x/y"}])).expect("gates");
    let absent = conditions_of(&status_of(&one, "R", |_| {}));
    assert_eq!(
        absent[2],
        "Ready False ReadinessGatesNotReady corresponding condition of pod readiness gate \"x/y\" does not exist."
    );
    one.status =
        serde_json::from_value(json!({"conditions": [{"type": "x/y", "status": "False"}]}))
            .expect("a status");
    let no = conditions_of(&status_of(&one, "R", |_| {}));
    assert!(no[2].ends_with("is not \"True\", but False"), "{}", no[2]);
    one.status = serde_json::from_value(json!({"conditions": [{"type": "x/y", "status": "True"}]}))
        .expect("a status");
    let yes = conditions_of(&status_of(&one, "R", |_| {}));
    assert_eq!(yes[2], "Ready True - -");
}

#[test]
fn times_of_conditions_change_only_with_their_status() {
    let one = pod("Always", &[], &["a"]);
    let mut state = PodState::new(&one, 500);
    let ready_at = |state: &mut PodState, now: i64| {
        let status = pod_status(&one, state, true, &[], now);
        let found = status
            .conditions
            .and_then(|all| all.into_iter().find(|one| one.type_ == "Ready"));
        found.and_then(|one| one.last_transition_time)
    };
    assert_eq!(ready_at(&mut state, 10_000), time(10_000));
    assert_eq!(ready_at(&mut state, 20_000), time(10_000));
    set(&mut state, "R");
    assert_eq!(ready_at(&mut state, 30_000), time(30_000));
}

#[test]
fn ids_states_and_failures_are_shown() {
    let one = pod("Always", &[], &["a"]);
    let status = status_of(&one, "b", |_| {});
    let found = status
        .container_statuses
        .iter()
        .flatten()
        .next()
        .expect("a status");
    assert_eq!(found.container_id.as_deref(), Some("process://old"));
    let last = found
        .last_state
        .as_ref()
        .and_then(|one| one.terminated.as_ref())
        .expect("a last state");
    assert_eq!(
        (last.exit_code, last.container_id.as_deref()),
        (1, Some("process://old"))
    );
    let failed = status_of(&one, "R", |state| {
        state.failure = Some(Failure {
            reason: "DeadlineExceeded".to_owned(),
            message: "too long".to_owned(),
        });
    });
    assert_eq!(failed.phase.as_deref(), Some("Failed"));
    assert_eq!(failed.reason.as_deref(), Some("DeadlineExceeded"));
    // A pod that is being terminated shows no change until it has stopped.
    let ending = status_of(&one, "R", |state| {
        state.termination = Some(Termination {
            deadline_ms: 0,
            grace_seconds: 0,
        });
    });
    assert_eq!(ending.phase.as_deref(), Some("Running"));
    assert_eq!(conditions_of(&ending)[2], "Ready True - -");
}
