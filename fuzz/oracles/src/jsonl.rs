//! Starts in recorded lines.

use kubevitals_jsonl::LineStarts;

/// Tokens of lines.
pub(crate) const TOKENS: &[&[u8]] = &[
    b"{",
    b"}",
    b"\n",
    b"\r\n",
    b",",
    b"\xff",
    b"{\"time\":\"\",\"kube_transition_metrics\":{",
    b"\"type\":\"lifecycle\",\"kube_namespace\":\"a\",\"pod_name\":\"b\",\"pod_uid\":\"1\",",
    b"\"type\":\"pod\",\"kube_namespace\":\"a\",\"pod_name\":\"b\",",
    b"\"pod\":{\"creation_to_ready_seconds\":1e308}}}",
    b"\"lifecycle\":{\"complete\":true,\"total_seconds\":1.5,",
    b"\"lifecycle\":{\"complete\":false,\"final\":true,\"incomplete\":{\"kind\":\"image_pull\"},",
    b"\"critical_path\":[{\"phase\":\"image_pull\",\"container\":\"c\",\"seconds\":-1}],",
    b"\"containers\":[{\"name\":\"c\",\"image\":\"i\"}]}}}",
];

/// No bytes make the reader panic, every start is counted once with one outcome, and lines that are
/// read twice change nothing.
///
/// # Panics
///
/// If the property is violated.
pub fn start_lines(bytes: &[u8]) {
    let read = |bytes: &[u8]| LineStarts::read(bytes, None).expect("memory can be read");
    let once = read(bytes);
    let stats = once.stats();
    let outcomes = stats.ready + stats.starting + stats.failed + stats.completed + stats.unknown;
    assert_eq!(stats.pods, outcomes, "each start has one outcome");
    assert!(stats.known() <= stats.pods);
    let twice = read(&[bytes, b"\n", bytes].concat()).stats();
    assert_eq!(stats.pods, twice.pods, "a repeated record counts once");
}
