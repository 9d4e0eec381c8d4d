//! Termination messages of containers.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

const MAX_MESSAGE_BYTES: u64 = 4096;
const MAX_LOG_BYTES: usize = 2048;
const MAX_LOG_LINES: usize = 80;

/// The message that a container wrote, or the end of its log.
pub(crate) fn termination_message(file: &Path, log: Option<&Path>) -> Option<String> {
    let mut text = Vec::new();
    // A container may have replaced the file by a link or a pipe.
    if std::fs::symlink_metadata(file).is_ok_and(|found| found.is_file())
        && let Ok(file) = File::open(file)
    {
        file.take(MAX_MESSAGE_BYTES).read_to_end(&mut text).ok()?;
    }
    if text.is_empty() {
        text = log_tail(log?)?.into_bytes();
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    (!text.is_empty()).then_some(text)
}

/// The last lines of a log in the format of the CRI.
fn log_tail(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    // Each line has a header of about 40 bytes.
    let window = (MAX_LOG_BYTES + MAX_LOG_LINES * 64) as u64;
    file.seek(SeekFrom::Start(length.saturating_sub(window)))
        .ok()?;
    let mut bytes = Vec::new();
    file.take(window).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(4, ' ');
        let (Some(_), Some("stdout" | "stderr"), Some(tag), Some(content)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let end = if tag == "P" { "" } else { "\n" };
        lines.push(format!("{content}{end}"));
    }
    let skipped = lines.len().saturating_sub(MAX_LOG_LINES);
    let tail: String = lines.into_iter().skip(skipped).collect();
    let mut start = tail.len().saturating_sub(MAX_LOG_BYTES);
    while !tail.is_char_boundary(start) {
        start += 1;
    }
    tail.get(start..).map(ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn the_file_wins_and_the_log_is_cut() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (file, log) = (folder.path().join("m"), folder.path().join("0.log"));
        let mut text = String::new();
        for n in 0..200 {
            writeln!(text, "2026-01-01T00:00:00.000000000Z stdout F line {n}").expect("a String");
        }
        std::fs::write(&log, text).expect("write");
        std::fs::write(&file, "").expect("write");
        assert_eq!(termination_message(&file, None), None);
        let tail = termination_message(&file, Some(&log)).expect("a tail");
        assert!(
            tail.starts_with("line 120\n") && tail.ends_with("line 199\n"),
            "{tail}"
        );
        std::fs::write(&file, "x".repeat(5000)).expect("write");
        let message = termination_message(&file, Some(&log)).expect("a message");
        assert_eq!(message.len(), 4096);
        std::fs::remove_file(&file).expect("remove");
        std::os::unix::fs::symlink("/etc/passwd", &file).expect("link");
        assert_eq!(
            termination_message(&file, None),
            None,
            "links are not followed"
        );
    }
}
