//! Facts that the kubelet writes only into the messages of its events.

use std::time::Duration;

use kubevitals_model::GoDuration;

/// The message of a `Pulled` event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PulledMessage {
    pub(crate) already_present: bool,
    /// The duration of the pull itself, to the millisecond.
    pub(crate) pull: Option<Duration>,
    /// The duration with the wait for other pulls.
    pub(crate) with_waiting: Option<Duration>,
    pub(crate) bytes: Option<u64>,
}

/// The probe of an `Unhealthy` event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Probe {
    Startup,
    Readiness,
    Liveness,
}

impl PulledMessage {
    /// Parses the forms that kubelets have written: `Successfully pulled image "a" in 1.2s`, since
    /// 1.25 `in 1.2s (3s including waiting)`, since 1.30 with `Image size: 123 bytes.`, and both
    /// forms of `already present on machine`.
    pub(crate) fn read(message: &str) -> Self {
        // An image may have any name: the facts come after it.
        let text = message.rsplit_once('"').map_or(message, |(_, text)| text);
        if text.contains("already present on machine") {
            return Self {
                already_present: true,
                ..Self::default()
            };
        }
        let (times, size) = text.split_once(". Image size: ").unwrap_or((text, ""));
        let times = times.trim().strip_prefix("in ").unwrap_or_default();
        let (pull, waiting) = times.split_once(" (").unwrap_or((times, ""));
        Self {
            already_present: false,
            pull: duration(pull.trim_end_matches('.')),
            with_waiting: duration(
                waiting
                    .split_once(" including")
                    .map_or("", |(time, _)| time),
            ),
            bytes: size
                .split_once(' ')
                .and_then(|(bytes, _)| bytes.parse().ok()),
        }
    }
}

impl Probe {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Readiness => "readiness",
            Self::Liveness => "liveness",
        }
    }

    /// Parses `Readiness probe failed: OUTPUT` into the probe and its output, which may be empty.
    pub(crate) fn read(message: &str) -> Option<(Self, &str)> {
        let (probe, text) = message.split_once(" probe ")?;
        let probe = match probe {
            "Startup" => Self::Startup,
            "Readiness" => Self::Readiness,
            "Liveness" => Self::Liveness,
            _ => return None,
        };
        let text = text.split_once(": ").map_or("", |(_, text)| text);
        Some((probe, text.trim()))
    }
}

/// The prefix of an event that stands for more than ten events with different messages.
pub(crate) const COMBINED: &str = "(combined from similar events): ";

/// The probe for which the kubelet kills a container: `Container app failed liveness probe, will be
/// restarted`.
pub(crate) fn killed_for(message: &str) -> Option<Probe> {
    if message.contains(" failed startup probe") {
        Some(Probe::Startup)
    } else if message.contains(" failed liveness probe") {
        Some(Probe::Liveness)
    } else {
        None
    }
}

/// The image that a pull is about: `Pulling image "a"`.
pub(crate) fn quoted_image(message: &str) -> Option<&str> {
    let (before, rest) = message.split_once('"')?;
    let (image, _) = rest.split_once('"')?;
    (before.ends_with("mage ") && !image.is_empty()).then_some(image)
}

/// The name in `spec.containers{app}` or `spec.initContainers{init}`.
pub(crate) fn container_of(field_path: &str) -> Option<&str> {
    let (list, rest) = field_path.split_once('{')?;
    matches!(list, "spec.containers" | "spec.initContainers")
        .then(|| rest.strip_suffix('}'))
        .flatten()
}

fn duration(text: &str) -> Option<Duration> {
    let read: GoDuration = text.trim().parse().ok()?;
    Duration::try_from(read).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_pull_is_parsed() {
        let now = PulledMessage::read(
            "Successfully pulled image \"a:1\" in 1.205s (1m3.5s including waiting). Image size: 742381 bytes.",
        );
        assert_eq!(
            now,
            PulledMessage {
                already_present: false,
                pull: Some(Duration::from_millis(1_205)),
                with_waiting: Some(Duration::from_millis(63_500)),
                bytes: Some(742_381),
            }
        );
        let before =
            PulledMessage::read("Successfully pulled image \"a\" in 2s (2s including waiting)");
        assert_eq!(before.with_waiting, Some(Duration::from_secs(2)));
        assert_eq!(before.bytes, None);
        let long_ago = PulledMessage::read("Successfully pulled image \"a\" in 734.5ms");
        assert_eq!(long_ago.pull, Some(Duration::from_micros(734_500)));
        let quoted =
            PulledMessage::read("Successfully pulled image \"already present on machine\" in 1s");
        assert!(!quoted.already_present && quoted.pull.is_some());
        for present in [
            "Container image \"a\" already present on machine",
            "Container image \"a\" already present on machine and can be accessed by the pod",
        ] {
            assert!(PulledMessage::read(present).already_present);
        }
    }

    #[test]
    fn malformed_messages_have_no_facts() {
        for message in [
            "",
            "\"",
            "Successfully pulled image \"a\" in soon (-1s including waiting). Image size: many bytes.",
        ] {
            assert_eq!(
                PulledMessage::read(message),
                PulledMessage::default(),
                "{message}"
            );
        }
    }

    #[test]
    fn probes_are_distinguished() {
        assert_eq!(
            Probe::read("Readiness probe failed: cat: no such file\n"),
            Some((Probe::Readiness, "cat: no such file"))
        );
        assert_eq!(
            Probe::read("Startup probe failed: "),
            Some((Probe::Startup, ""))
        );
        assert_eq!(Probe::read("the probe failed"), None);
    }

    #[test]
    fn containers_are_found_in_paths() {
        assert_eq!(container_of("spec.containers{app}"), Some("app"));
        assert_eq!(container_of("spec.initContainers{a}"), Some("a"));
        for other in [
            "",
            "spec.containers",
            "spec.ephemeralContainers{debug}",
            "spec.containers{a",
        ] {
            assert_eq!(container_of(other), None, "{other}");
        }
    }
}
