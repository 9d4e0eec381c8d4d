//! Measurements of image pulls.

use std::time::Duration;

use kubevitals_model::Timestamp;
use kubevitals_transitions::{PodRecord, Pull};

/// The kubelet's classes of image sizes: the lower bound in bytes, and the name, largest first.
const SIZE_CLASSES: [(u64, &str); 12] = [
    (100 * GIB, "GT100GB"),
    (60 * GIB, "60GB-100GB"),
    (40 * GIB, "40GB-60GB"),
    (30 * GIB, "30GB-40GB"),
    (20 * GIB, "20GB-30GB"),
    (10 * GIB, "10GB-20GB"),
    (5 * GIB, "5GB-10GB"),
    (GIB, "1GB-5GB"),
    (500 * MIB, "500MB-1GB"),
    (100 * MIB, "100MB-500MB"),
    (10 * MIB, "10MB-100MB"),
    (0, "0-10MB"),
];

/// The kubelet's class of unknown sizes.
const UNKNOWN_SIZE: &str = "N/A";

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Failure reasons by fragments of the messages of runtimes and registries. The first match counts.
const FAILURES: [(&str, &[&str]); 7] = [
    ("no_space", &["no space left on device"]),
    ("never_pull", &["pull policy of never"]),
    ("rate_limited", &["too many requests", "toomanyrequests"]),
    (
        "unauthorized",
        &[
            "401 unauthorized",
            "403 forbidden",
            "access denied",
            "denied:",
            "authorization failed",
            "authentication required",
            "unauthorized:",
            "no basic auth",
        ],
    ),
    (
        "registry_unavailable",
        &[
            "registryunavailable",
            "registry is unavailable",
            "dial tcp",
            "no such host",
            "i/o timeout",
            "handshake timeout",
            "timeout awaiting",
            "deadline exceeded",
            "connection refused",
            "connection reset",
            "tls:",
            "x509",
            "unexpected eof",
            "500 internal",
            "502 bad gateway",
            "503 service",
            "504 gateway",
        ],
    ),
    ("wrong_platform", &["no match for platform"]),
    (
        "not_found",
        &["not found", "manifest unknown", "name unknown"],
    ),
];

/// The kubelet's class of an image of this size.
pub(crate) fn size_class(bytes: Option<u64>) -> &'static str {
    let bytes = bytes.unwrap_or(0);
    let found = SIZE_CLASSES.iter().find(|(above, _)| bytes > *above);
    found.map_or(UNKNOWN_SIZE, |(_, name)| name)
}

/// The reason of a failed pull, from a closed set.
pub(crate) fn failure_class(message: Option<&str>) -> &'static str {
    let message = message.unwrap_or_default().to_ascii_lowercase();
    let found = FAILURES
        .iter()
        .find(|(_, words)| words.iter().any(|word| message.contains(word)));
    found.map_or("other", |(class, _)| class)
}

/// Whether the pull of every container's image is known.
pub(crate) fn are_known(record: &PodRecord) -> bool {
    record.containers.iter().all(|container| {
        let facts = record.facts_of(container);
        facts.is_some_and(|facts| facts.pull.done.is_some())
    })
}

/// The time during which at least one image was being pulled. Parallel pulls count once.
pub(crate) fn time_of(record: &PodRecord) -> Option<Duration> {
    let pulls = record.pulls().filter_map(|(_, pull)| interval(pull));
    let mut pulls: Vec<(Timestamp, Timestamp)> = pulls.collect();
    pulls.sort_unstable();
    let mut covered: Option<(Duration, Timestamp)> = None;
    for (from, to) in pulls {
        let (sum, until) = covered.unwrap_or((Duration::ZERO, from));
        let more = to.since(from.max(until)).unwrap_or_default();
        covered = Some((sum + more, until.max(to)));
    }
    covered.map(|(sum, _)| sum)
}

/// The interval from the start of a pull, with its wait for others and failed attempts, to its end.
fn interval(pull: &Pull) -> Option<(Timestamp, Timestamp)> {
    let done = pull.done.as_ref()?;
    let from = if done.already_present {
        // Another pod's pull may have brought it while this one waited.
        pull.began?
    } else {
        done.at.checked_sub(pull.took()?)?
    };
    (from <= done.at).then_some((from, done.at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_classified_as_in_the_kubelet() {
        for (bytes, class) in [
            (None, "N/A"),
            (Some(0), "N/A"),
            (Some(1), "0-10MB"),
            (Some(10 * MIB), "0-10MB"),
            (Some(10 * MIB + 1), "10MB-100MB"),
            (Some(500 * MIB), "100MB-500MB"),
            (Some(GIB), "500MB-1GB"),
            (Some(GIB + 1), "1GB-5GB"),
            (Some(100 * GIB), "60GB-100GB"),
            (Some(u64::MAX), "GT100GB"),
        ] {
            assert_eq!(size_class(bytes), class, "{bytes:?}");
        }
    }

    #[test]
    fn failures_are_classified_by_message() {
        for (message, class) in [
            (
                r#"Failed to pull image "x": rpc error: code = NotFound desc = failed to pull and unpack image "docker.io/library/x:1": failed to resolve reference "docker.io/library/x:1": docker.io/library/x:1: not found"#,
                "not_found",
            ),
            (
                r#"Failed to pull image "x": failed to resolve reference "docker.io/library/x:latest": pull access denied, repository does not exist or may require authorization: server message: insufficient_scope: authorization failed"#,
                "unauthorized",
            ),
            (
                r#"Failed to pull image "r.io/x": unexpected status from HEAD request to https://r.io/v2/x/manifests/1: 401 Unauthorized"#,
                "unauthorized",
            ),
            (
                r#"Failed to pull image "x": httpReadSeeker: failed open: unexpected status code https://registry-1.docker.io/v2/library/x/blobs/sha256:1: 429 Too Many Requests - Server message: toomanyrequests: You have reached your pull rate limit"#,
                "rate_limited",
            ),
            (
                r#"Failed to pull image "x": failed to do request: Head "https://r.example/v2/x": dial tcp: lookup r.example on 10.0.0.10:53: no such host"#,
                "registry_unavailable",
            ),
            (
                r#"Failed to pull image "x": write /var/lib/containerd/tmp: no space left on device"#,
                "no_space",
            ),
            (
                r#"Container image "x" is not present with pull policy of Never"#,
                "never_pull",
            ),
            (
                r#"Failed to pull image "x": no match for platform in manifest: not found"#,
                "wrong_platform",
            ),
            // Names of images say nothing.
            (
                r#"Failed to pull image "auth/timeout-429:denied": failed to resolve reference: not found"#,
                "not_found",
            ),
            ("Failed to pull image \"x\": pull QPS exceeded", "other"),
            ("", "other"),
        ] {
            assert_eq!(failure_class(Some(message)), class, "{message}");
        }
        assert_eq!(failure_class(None), "other");
    }
}
