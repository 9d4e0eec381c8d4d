//! Stored lines of container logs.

use kubevitals_container_logs::LogLine;

/// Parts of lines of CRI and of Docker.
pub(crate) const TOKENS: &[&[u8]] = &[
    b" ",
    b"2026-10-06T00:17:09.669794202Z",
    b"2026-10-06T00:17:09+02:00",
    b" stdout ",
    b" stderr ",
    b"F ",
    b"P ",
    b"P:x ",
    b"{\"log\":\"",
    b"\\n\",\"stream\":\"stdout\",\"time\":\"2026-10-06T00:17:09Z\"}",
    b"\\u00e9",
    b"\xff",
];

/// A line that is parsed, written and parsed again is the same.
///
/// # Panics
///
/// If the property is violated.
pub fn log_line(input: &[u8]) {
    let Some(line) = LogLine::parse(input) else {
        return;
    };
    // Docker's text can contain a line feed, which ends a line of CRI.
    if line.text.contains(&b'\n') {
        return;
    }
    let mut written = Vec::new();
    line.write_cri(&mut written);
    assert_eq!(written.pop(), Some(b'\n'));
    assert!(!written.contains(&b'\n'), "one line is several");
    assert_eq!(LogLine::parse(&written), Some(line));
}
