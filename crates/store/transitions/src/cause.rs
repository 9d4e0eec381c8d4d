//! The cause of a slow start, in one sentence.

use std::fmt::Write;
use std::time::Duration;

use kubevitals_model::{Condition, Timestamp};

use crate::blocker::{Blocker, BlockerKind};
use crate::critical_path::{Phase, Segment};
use crate::facts::{ContainerFacts, Failures};
use crate::preparation::FailedPart;
use crate::record::{ContainerRecord, Disruption, ExitKind, PodRecord};

/// Characters of a message that are quoted.
const MAX_QUOTE: usize = 160;

impl PodRecord {
    /// Returns one sentence about what took longest: what, for how long of how long, and the reason
    /// if one is known.
    pub fn cause(&self) -> String {
        self.cause_in(None)
    }

    /// Returns the same with the pool of its node, where that matters.
    pub fn cause_in(&self, pool: Option<&str>) -> String {
        let longest = self.longest();
        if self.is_complete() {
            return longest.map_or_else(
                || "ready within the second in which it was created".to_owned(),
                |longest| self.about(&longest, pool),
            );
        }
        let (lasted, besides) = match &longest {
            Some(longest) if !longest.is_done => {
                (format!(", for {}", self.share(longest)), String::new())
            }
            Some(longest) => (String::new(), format!("; {}", self.about(longest, pool))),
            None => (String::new(), String::new()),
        };
        let is_wanted = !self.is_over() && self.milestones.deletion.is_none();
        let never = if is_wanted {
            "not ready yet"
        } else {
            "never seen ready"
        };
        let Some(found) = self.blocker() else {
            return format!("{never}{lasted}{besides}");
        };
        let (reason, failures) = self.blocker_text(&found);
        let text = if self.is_unseen() {
            reason
        } else {
            format!("{never}: {reason}{lasted}")
        };
        let text = match failures {
            Some(failures) => with_failures(text, failures),
            None => with_quote(text, found.message.as_deref()),
        };
        let disrupted = self.disruption.as_ref().map(disruption_text);
        text + &self.refusal_text(&found) + &besides + &disrupted.unwrap_or_default()
    }

    /// Adds why no autoscaler adds a node, where none fits.
    fn refusal_text(&self, found: &Blocker) -> String {
        let facts = self.facts.preparation().map(|facts| &facts.provisioning);
        match facts.and_then(|facts| facts.refusal()) {
            Some(reason) if found.kind == BlockerKind::Unschedulable => {
                with_quote("; no node is added".to_owned(), Some(reason))
            }
            _ => String::new(),
        }
    }

    /// The duration of a segment, of the whole.
    fn share(&self, segment: &Segment) -> String {
        let is_readiness = match segment.phase {
            Phase::Readiness | Phase::ReadinessGates => true,
            // Its end is that of readiness.
            Phase::StartupProbe => {
                let container = segment.container.as_deref();
                let container = container.and_then(|name| self.container(name));
                container.is_some_and(|one| self.starts_until_ready(one))
            }
            _ => false,
        };
        let at_most = if is_readiness && self.is_upper_bound() {
            "at most "
        } else {
            ""
        };
        let took = HumanDuration(segment.took());
        match self.total() {
            Some(total) if total > segment.took() => {
                format!("{at_most}{took} of {}", HumanDuration(total))
            }
            _ => format!("{at_most}{took}"),
        }
    }

    /// Returns why a pod that was ready is not any more, and since when; `None` if it is ready,
    /// finished or being deleted.
    pub fn readiness_lost(&self, now: Timestamp) -> Option<String> {
        let was_ready = self.is_complete() || self.was_ready_before;
        if !was_ready || self.is_over() || self.milestones.deletion.is_some() {
            return None;
        }
        let ready = Condition::find(&self.pod.conditions, "Ready");
        let ready = ready.filter(|condition| !condition.is_true())?;
        let lasts = ready.last_transition.and_then(|since| now.since(since));
        let lasts = lasts.map_or(String::new(), |lasts| {
            format!(" for {}", HumanDuration(lasts))
        });
        let found = self.refined(Blocker::find(&self.pod, Some(now)));
        let (reason, failures) = self.blocker_text(&found);
        let text = format!("was ready before, not ready{lasts}: {reason}");
        Some(match failures {
            Some(failures) => with_failures(text, failures),
            None => with_quote(text, found.message.as_deref()),
        })
    }

    fn about(&self, longest: &Segment, pool: Option<&str>) -> String {
        let of = self.share(longest);
        let container = longest.container.as_deref().unwrap_or("?");
        let image = self.image_of(container);
        let facts = self.facts.of(container);
        match longest.phase {
            Phase::Gated => format!("scheduling gates held it for {of}"),
            Phase::Scheduling => {
                let message = self.unschedulable.as_ref();
                let message = message.and_then(|found| found.message.as_deref());
                with_quote(format!("waited for a node for {of}"), message)
            }
            Phase::Provisioning => self.about_provisioning(&of),
            Phase::Volumes | Phase::Sandbox | Phase::Network => {
                self.about_preparation(longest.phase, &of)
            }
            Phase::ImagePullFailed => {
                let text = format!("image {image} could not be pulled for {of}");
                facts.map_or(text.clone(), |facts| {
                    with_failures(text, &facts.pull.failed)
                })
            }
            Phase::ImagePull => {
                let bytes = facts
                    .and_then(|facts| facts.pull.done.as_ref())
                    .and_then(|done| done.bytes);
                let mut text = format!("pulling image {image} took {of}");
                if let Some(bytes) = bytes {
                    let _ = write!(text, ", {}", Size(bytes));
                }
                if let Some(node) = &self.pod.summary.node {
                    let _ = write!(text, " to node {node}");
                    if let Some(pool) = pool {
                        let _ = write!(text, " of pool {pool}");
                    }
                }
                text
            }
            Phase::ContainerStart => {
                format!("container {container} took {of} to be created and started")
            }
            Phase::Init => {
                let restarts = self.container(container).map(restarts_text);
                format!(
                    "init container {container} took {of}{}",
                    restarts.unwrap_or_default()
                )
            }
            Phase::StartupProbe => {
                let text = format!("container {container} took {of} to pass its startup probe");
                facts.map_or(text.clone(), |facts| {
                    with_failures(text, &facts.startup_probe)
                })
            }
            Phase::Readiness if longest.container.is_some() => {
                let mut text = format!("container {container} ran for {of} before it was ready");
                let found = self.container(container);
                if found.is_some_and(ContainerRecord::is_start_unknown)
                    && facts.is_none_or(|facts| facts.startup_probe.times() == 0)
                {
                    text.push_str(", its startup probe included");
                }
                facts.map_or(text.clone(), |facts| {
                    with_failures(text, &facts.readiness_probe)
                })
            }
            Phase::Readiness => format!("reporting readiness took {of}"),
            Phase::ReadinessGates => format!("readiness gates took {of}"),
            Phase::CrashLoop => {
                let mut text =
                    format!("container {container} crashed for {of} before it stayed up");
                if let Some(one) = self.container(container)
                    && let Some(crashes) = one.restarts_before_ready()
                {
                    let _ = write!(text, " (restarted {}", times(crashes.restarts));
                    if let Some(exit) = exit_text(one) {
                        let _ = write!(text, ", last exit: {exit}");
                    }
                    text.push(')');
                }
                text
            }
            Phase::Unknown => format!("unknown for {of}"),
        }
    }

    fn about_provisioning(&self, of: &str) -> String {
        let mut text = format!("waited for a new node for {of}");
        let created = self.milestones.created.best();
        let joined = created.and_then(|created| self.node_created?.since(created));
        if let Some((node, joined)) = self.pod.summary.node.as_ref().zip(joined) {
            let _ = write!(text, ", {node} joined after {}", HumanDuration(joined));
        }
        let facts = self.facts.preparation().map(|facts| &facts.provisioning);
        with_quote(text, facts.and_then(|facts| facts.message.as_deref()))
    }

    fn about_preparation(&self, phase: Phase, of: &str) -> String {
        let facts = self.facts.preparation();
        let failures = |part: FailedPart| {
            let failures = facts.map(|facts| facts.failures(part));
            failures.filter(|failures| failures.times() > 0)
        };
        let (text, failures) = match phase {
            Phase::Volumes => match failures(FailedPart::Volumes) {
                None => ("attaching volumes took", None),
                failed => ("volumes took", failed),
            },
            Phase::Network => ("setting up the network took", failures(FailedPart::Network)),
            _ => match failures(FailedPart::Sandbox) {
                None => ("sandbox, network and volumes took", None),
                failed => ("creating the sandbox took", failed),
            },
        };
        let text = format!("{text} {of}");
        failures.map_or(text.clone(), |failures| with_failures(text, failures))
    }

    fn container(&self, name: &str) -> Option<&ContainerRecord> {
        self.containers.iter().find(|one| &*one.name == name)
    }

    fn image_of(&self, container: &str) -> &str {
        let image = self
            .container(container)
            .and_then(|one| one.image.as_deref());
        image.unwrap_or("?")
    }

    /// Describes a blocker, with its failures if there are any.
    fn blocker_text(&self, found: &Blocker) -> (String, Option<&Failures>) {
        let container = found.container.as_deref().unwrap_or("?");
        let facts = self.facts.of(container);
        let preparation = self.facts.preparation();
        let reason = found.reason.as_deref();
        let with_reason = |text: String| match reason {
            Some(reason) => format!("{text} ({reason})"),
            None => text,
        };
        let with_exit = |text: String| {
            let exit = self.container(container).and_then(exit_text);
            match exit.as_deref().or(reason) {
                Some(exit) => format!("{text} ({exit})"),
                None => text,
            }
        };
        let named = reason.unwrap_or("?");
        let is_killed_for_liveness = found.kind == BlockerKind::CrashLoop
            && facts.is_some_and(ContainerFacts::was_killed_for_liveness_probe);
        let failures = match found.kind {
            BlockerKind::Volumes => preparation.map(|facts| facts.failures(FailedPart::Volumes)),
            BlockerKind::Sandbox => preparation.map(|facts| facts.failures(FailedPart::Sandbox)),
            BlockerKind::Network => preparation.map(|facts| facts.failures(FailedPart::Network)),
            BlockerKind::ImagePullFailed => facts.map(|facts| &facts.pull.failed),
            BlockerKind::StartupProbe => facts.map(|facts| &facts.startup_probe),
            BlockerKind::ReadinessProbe => facts.map(|facts| &facts.readiness_probe),
            BlockerKind::CrashLoop if is_killed_for_liveness => {
                facts.map(|facts| &facts.liveness_probe)
            }
            _ => None,
        };
        let failures = failures.filter(|failures| failures.times() > 0);
        let has_failures = failures.is_some();
        let text = match found.kind {
            BlockerKind::Gated => format!("scheduling gate {named} is not removed"),
            BlockerKind::NotScheduled => "the scheduler has not considered it".to_owned(),
            BlockerKind::Unschedulable => "no node fits".to_owned(),
            BlockerKind::Provisioning => "a new node is being added".to_owned(),
            BlockerKind::NotAccepted => "the kubelet has not accepted it".to_owned(),
            BlockerKind::Volumes => "volumes cannot be mounted".to_owned(),
            BlockerKind::Network => "the network cannot be set up".to_owned(),
            BlockerKind::Sandbox if has_failures => "the sandbox cannot be created".to_owned(),
            BlockerKind::Sandbox => "sandbox, network or volumes are not ready".to_owned(),
            BlockerKind::ImagePullFailed => with_reason(format!(
                "the image of container {container} cannot be pulled"
            )),
            BlockerKind::ImagePull => format!(
                "image {} of container {container} is being pulled",
                self.image_of(container)
            ),
            BlockerKind::ContainerCreation => {
                with_reason(format!("container {container} was not started"))
            }
            BlockerKind::Init => format!("init container {container} has not finished"),
            BlockerKind::InitFailed => with_exit(format!("init container {container} fails")),
            BlockerKind::CrashLoop => {
                let text = with_exit(format!("container {container} keeps crashing"));
                if is_killed_for_liveness {
                    text + ", the kubelet kills it for its liveness probe"
                } else {
                    text
                }
            }
            BlockerKind::StartupProbe => format!("container {container} fails its startup probe"),
            BlockerKind::ReadinessProbe => format!("container {container} is not ready"),
            BlockerKind::ReadinessGate => format!("readiness gate {named} is not met"),
            BlockerKind::Succeeded if found.container.is_some() => {
                format!("container {container} has completed")
            }
            BlockerKind::Succeeded => "it completed first".to_owned(),
            BlockerKind::Failed if found.container.is_some() => {
                with_exit(format!("container {container} failed"))
            }
            BlockerKind::Failed => with_reason("the pod failed".to_owned()),
            BlockerKind::Unseen => {
                "it became ready before it was observed, at an unknown time".to_owned()
            }
        };
        (text, failures)
    }
}

/// Describes the last exit of a container: `OOMKilled, exit code 137`.
fn exit_text(container: &ContainerRecord) -> Option<String> {
    let exit = container.last_exit.as_ref()?;
    Some(match exit.reason.as_deref() {
        Some(reason) => format!("{reason}, exit code {}", exit.code),
        None => format!("exit code {}", exit.code),
    })
}

/// Describes the restarts of an init container, in brackets.
fn restarts_text(container: &ContainerRecord) -> String {
    if container.restarts == 0 {
        return String::new();
    }
    let mut text = format!(" (restarted {}", times(container.restarts));
    let log = container.restart_log.as_ref();
    let kinds: Vec<&str> = log.map_or(Vec::new(), |log| {
        let known = log.after.iter().map(|(kind, _)| *kind);
        let known = known.filter(|kind| *kind != ExitKind::Unknown);
        known.map(ExitKind::as_str).collect()
    });
    if !kinds.is_empty() {
        let _ = write!(text, " after {}", kinds.join(", "));
    }
    text + ")"
}

fn times(number: i32) -> String {
    match number {
        1 => "once".to_owned(),
        number => format!("{number} times"),
    }
}

/// Describes what ended the pod before it was ready.
fn disruption_text(disruption: &Disruption) -> String {
    let reason = disruption.reason.as_deref();
    let what = match reason {
        Some("PreemptionByScheduler") => "preempted",
        Some("EvictionByEvictionAPI") => "evicted",
        Some("DeletionByTaintManager") => "evicted for a taint of its node",
        Some("DeletionByPodGC") => "deleted because its node is gone",
        Some("TerminationByKubelet") => "terminated by the kubelet",
        _ => "disrupted",
    };
    let text = match reason {
        Some(reason) => format!("; it was {what} ({reason})"),
        None => format!("; it was {what}"),
    };
    with_quote(text, disruption.message.as_deref())
}

/// A duration as it is shown to users.
pub struct HumanDuration(pub Duration);

/// A number of bytes as it is shown to users.
struct Size(u64);

impl std::fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let millis = self.0.as_millis();
        let (seconds, rest) = (millis / 1_000, millis % 1_000);
        match (seconds, rest) {
            (0, 1..) => write!(f, "{rest} ms"),
            (0..10, 1..) => write!(f, "{seconds}.{} s", rest / 100),
            (0..120, _) => write!(f, "{seconds} s"),
            (120..7_200, _) => write!(f, "{} min {} s", seconds / 60, seconds % 60),
            _ => write!(f, "{} h {} min", seconds / 3_600, seconds / 60 % 60),
        }
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tenths = |unit: u64| (self.0 / unit, self.0 % unit * 10 / unit);
        match self.0 {
            0..1_000 => write!(f, "{} B", self.0),
            1_000..1_000_000 => write!(f, "{} kB", self.0 / 1_000),
            1_000_000..1_000_000_000 => write!(f, "{} MB", self.0 / 1_000_000),
            _ => {
                let (whole, tenth) = tenths(1_000_000_000);
                write!(f, "{whole}.{tenth} GB")
            }
        }
    }
}

fn with_failures(text: String, failures: &Failures) -> String {
    match failures.times() {
        0 => text,
        1 => with_quote(format!("{text} (failed once)"), failures.message.as_deref()),
        times => with_quote(
            format!("{text} (failed {times} times)"),
            failures.message.as_deref(),
        ),
    }
}

/// Appends a message as one line without control characters: it is shown on terminals.
fn with_quote(text: String, message: Option<&str>) -> String {
    let Some(message) = message.filter(|message| !message.is_empty()) else {
        return text;
    };
    let mut quote: Vec<char> = message
        .chars()
        .map(|char| if char.is_control() { ' ' } else { char })
        .collect();
    let beyond = quote.len().saturating_sub(MAX_QUOTE);
    if beyond > 0 && message.starts_with("Failed to pull image") {
        // The runtime names the image at each step, and the reason last.
        quote.splice(..beyond, ['…']);
    } else if beyond > 0 {
        quote.truncate(MAX_QUOTE);
        quote.push('…');
    }
    let quote: String = quote.into_iter().collect();
    format!("{text}: {quote}")
}
