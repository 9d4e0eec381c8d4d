//! Messages of conditions and back-offs, as kubelet and scheduler write them.

use super::pod::{ContainerState, Part, Phase, Pod};

/// Reason and message of the kubelet's conditions.
pub(crate) struct Reasons {
    pub(crate) sandbox: Option<(&'static str, Option<String>)>,
    pub(crate) initialized: Option<(&'static str, Option<String>)>,
    pub(crate) ready: Option<(&'static str, Option<String>)>,
    pub(crate) containers: Option<(&'static str, Option<String>)>,
}

pub(crate) fn conditions(pod: &Pod) -> Reasons {
    let outcome = pod.outcome();
    let lost = pod
        .containers
        .iter()
        .any(|container| matches!(container.state, ContainerState::Lost));
    let sandbox = (!pod.sandbox.holds).then(|| {
        // An address means that there was a sandbox.
        let message = match pod.ip {
            None => "no pod sandbox exists",
            Some(_) => "pod sandbox is not ready",
        };
        ("PodSandboxNotReady", Some(message.to_owned()))
    });
    let initialized = match (pod.initialized.holds, outcome) {
        (true, Some(Phase::Succeeded)) => Some(("PodCompleted", None)),
        (true, _) => None,
        (false, _) => {
            let names = names(pod, |part| {
                part.init
                    && if part.one_shot {
                        !part.container.ready
                    } else {
                        !(part.container.started && part.container.ready)
                    }
            });
            let message = format!("containers with incomplete status: [{names}]");
            Some(("ContainersNotInitialized", Some(message)))
        }
    };
    let containers = match (pod.containers_ready.holds, outcome) {
        (true, _) => None,
        (false, Some(Phase::Succeeded)) => Some(("PodCompleted", None)),
        // The status manager learns of a lost container later than of the conditions.
        (false, Some(_)) if !lost => Some(("PodFailed", None)),
        (false, _) => {
            let names = names(pod, |part| !part.one_shot && !part.container.ready);
            let message = format!("containers with unready status: [{names}]");
            Some(("ContainersNotReady", Some(message)))
        }
    };
    let ready = match (&containers, &pod.template().readiness_gate) {
        (Some(reason), _) => Some(reason.clone()),
        (None, Some((gate, _))) if pod.gate_open.is_none() => {
            let message =
                format!("corresponding condition of pod readiness gate \"{gate}\" does not exist.");
            Some(("ReadinessGatesNotReady", Some(message)))
        }
        (None, _) => None,
    };
    Reasons {
        sandbox,
        initialized,
        ready,
        containers,
    }
}

/// Message of the scheduler about a pod that fits no node.
pub(crate) fn unschedulable(pod: &Pod) -> String {
    let nodes = pod.compiled.cluster_size;
    format!(
        "0/{nodes} nodes are available: {nodes} node(s) didn't match Pod's node affinity/selector. \
         preemption: 0/{nodes} nodes are available: {nodes} Preemption is not helpful for scheduling."
    )
}

/// Message of a failed image pull.
pub(crate) fn pull_failure(image: &str, host: std::net::Ipv4Addr, port: u64) -> String {
    let (repository, tag) = image.rsplit_once(':').unwrap_or((image, "latest"));
    let (registry, path) = repository
        .split_once('/')
        .unwrap_or(("docker.io", repository));
    let server = registry.split(':').next().unwrap_or(registry);
    format!(
        "failed to pull and unpack image \"{image}\": failed to resolve reference \"{image}\": \
         failed to do request: Head \"https://{registry}/v2/{path}/manifests/{tag}\": \
         dial tcp: lookup {server} on 10.96.0.10:53: read udp {host}:{port}->10.96.0.10:53: i/o timeout"
    )
}

/// Whole seconds as Go prints a duration: `10s`, `2m40s`, `5m0s`.
pub(crate) fn go_seconds(seconds: u64) -> String {
    match seconds / 60 {
        0 => format!("{seconds}s"),
        minutes => format!("{minutes}m{}s", seconds % 60),
    }
}

/// Milliseconds as a kubelet rounds the duration of a pull: `845ms`, `1.234s`.
pub(crate) fn go_millis(milliseconds: u64) -> String {
    if milliseconds < 1_000 {
        return format!("{milliseconds}ms");
    }
    let text = format!("{}.{:03}", milliseconds / 1_000 % 60, milliseconds % 1_000);
    let seconds = text.trim_end_matches('0').trim_end_matches('.');
    match milliseconds / 60_000 {
        0 => format!("{seconds}s"),
        minutes => format!("{minutes}m{seconds}s"),
    }
}

fn names(pod: &Pod, predicate: impl Fn(&Part<'_>) -> bool) -> String {
    let mut text = String::new();
    for part in pod.parts().filter(|part| predicate(part)) {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(part.name);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_in_go() {
        assert_eq!(go_seconds(10), "10s");
        assert_eq!(go_seconds(160), "2m40s");
        assert_eq!(go_seconds(300), "5m0s");
        assert_eq!(go_millis(845), "845ms");
        assert_eq!(go_millis(1_000), "1s");
        assert_eq!(go_millis(1_230), "1.23s");
        assert_eq!(go_millis(75_004), "1m15.004s");
    }
}
