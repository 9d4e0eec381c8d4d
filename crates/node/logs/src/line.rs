//! One stored line of a log.

use std::borrow::Cow;

use kubevitals_model::Timestamp;
use memchr::{memchr, memrchr};
use serde::Deserialize;

/// The stream that a container wrote to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// A stored line. Several of them can be one line of the container: all but the last are partial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine<'a> {
    /// The time at which it was written, as it is in the file.
    pub time: Cow<'a, str>,
    /// The same to the millisecond.
    pub at: Timestamp,
    pub stream: Stream,
    /// Whether the container wrote no line feed here.
    pub is_partial: bool,
    /// What the container wrote, without the line feed.
    pub text: Cow<'a, [u8]>,
}

/// A line of Docker's `json-file` driver.
#[derive(Deserialize)]
struct DockerLine<'a> {
    #[serde(borrow, default)]
    log: Cow<'a, str>,
    #[serde(borrow)]
    stream: Cow<'a, str>,
    #[serde(borrow)]
    time: Cow<'a, str>,
}

impl Stream {
    /// The name in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }

    fn parse(name: &[u8]) -> Option<Self> {
        match name {
            b"stdout" => Some(Self::Stdout),
            b"stderr" => Some(Self::Stderr),
            _ => None,
        }
    }
}

impl<'a> LogLine<'a> {
    /// Parses a line without its line feed, in the format of CRI, or else in Docker's.
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        if line.first() == Some(&b'{') {
            return Self::parse_docker(line);
        }
        Self::parse_cri(line)
    }

    /// Parses `<time> <stream> <tags> <text>`.
    fn parse_cri(line: &'a [u8]) -> Option<Self> {
        let (time, rest) = split_space(line)?;
        let (stream, rest) = split_space(rest)?;
        // A runtime may leave out the space before an empty text.
        let (tags, text) = split_space(rest).unwrap_or((rest, &[]));
        let time = str::from_utf8(time).ok()?;
        let tag = tags.split(|byte| *byte == b':').next()?;
        let is_partial = match tag {
            b"F" => false,
            b"P" => true,
            _ => return None,
        };
        Some(Self {
            at: time.parse().ok()?,
            time: Cow::Borrowed(time),
            stream: Stream::parse(stream)?,
            is_partial,
            text: Cow::Borrowed(text),
        })
    }

    fn parse_docker(line: &'a [u8]) -> Option<Self> {
        let DockerLine { log, stream, time } = serde_json::from_slice(line).ok()?;
        let is_partial = !log.ends_with('\n');
        let text = match log {
            Cow::Borrowed(text) => {
                Cow::Borrowed(text.strip_suffix('\n').unwrap_or(text).as_bytes())
            }
            Cow::Owned(mut text) => {
                if !is_partial {
                    text.pop();
                }
                Cow::Owned(text.into_bytes())
            }
        };
        Some(Self {
            at: time.parse().ok()?,
            stream: Stream::parse(stream.as_bytes())?,
            time,
            is_partial,
            text,
        })
    }

    /// Appends the line in the format of CRI, with its line feed.
    pub fn write_cri(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.time.as_bytes());
        out.push(b' ');
        out.extend_from_slice(self.stream.as_str().as_bytes());
        out.extend_from_slice(if self.is_partial { b" P " } else { b" F " });
        out.extend_from_slice(&self.text);
        out.push(b'\n');
    }

    /// Appends the time with nine digits of a second, as the kubelet shows it.
    pub(crate) fn write_time(&self, out: &mut Vec<u8>) {
        const DIGITS: usize = 9;
        let time = self.time.as_bytes();
        let clock = memchr(b'T', time).unwrap_or(0);
        let zone = time
            .iter()
            .enumerate()
            .skip(clock)
            .find(|(_, byte)| matches!(byte, b'Z' | b'+' | b'-'))
            .map_or(time.len(), |(index, _)| index);
        let (moment, zone) = time.split_at(zone);
        let point = memrchr(b'.', moment).or_else(|| memrchr(b',', moment));
        let (seconds, fraction) = moment.split_at(point.unwrap_or(moment.len()));
        let fraction = fraction.get(1..).unwrap_or_default();
        out.extend_from_slice(seconds);
        out.push(b'.');
        out.extend(
            fraction
                .iter()
                .copied()
                .chain(std::iter::repeat(b'0'))
                .take(DIGITS),
        );
        let is_utc = matches!(zone, b"+00:00" | b"-00:00");
        out.extend_from_slice(if is_utc { b"Z" } else { zone });
    }
}

fn split_space(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr(b' ', bytes)?;
    Some((bytes.get(..at)?, bytes.get(at + 1..)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(line: &str) -> String {
        let mut out = Vec::new();
        LogLine::parse(line.as_bytes())
            .unwrap()
            .write_time(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_of_cri_is_parsed() {
        let line = LogLine::parse(b"2026-10-06T00:17:09.669794202Z stderr P a b ").unwrap();
        assert_eq!(line.stream, Stream::Stderr);
        assert!(line.is_partial);
        assert_eq!(&*line.text, b"a b ");
        assert_eq!(line.at, "2026-10-06T00:17:09.669Z".parse().unwrap());
        let line = LogLine::parse(b"2026-10-06T00:17:09Z stdout F:other ").unwrap();
        assert!(!line.is_partial && line.text.is_empty());
        let line = LogLine::parse(b"2026-10-06T00:17:09Z stdout F").unwrap();
        assert!(!line.is_partial && line.text.is_empty());
    }

    #[test]
    fn a_line_of_docker_is_parsed() {
        let line =
            br#"{"log":"a \u00e9\n","stream":"stdout","time":"2026-10-06T00:17:09.669794202Z"}"#;
        let line = LogLine::parse(line).unwrap();
        assert_eq!(&*line.text, "a é".as_bytes());
        assert!(!line.is_partial);
        let line = br#"{"log":"half","stream":"stderr","time":"2026-10-06T00:17:09Z"}"#;
        let line = LogLine::parse(line).unwrap();
        assert_eq!((&*line.text, line.is_partial), (&b"half"[..], true));
    }

    #[test]
    fn what_is_no_line_is_refused() {
        for line in [
            "",
            "root:x:0:0:root:/root:/bin/bash",
            "2026-10-06T00:17:09Z stdout X text",
            "2026-10-06T00:17:09Z stdin F text",
            "yesterday stdout F text",
            "{\"log\":\"a\"}",
            "{",
        ] {
            assert_eq!(LogLine::parse(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn times_are_shown_with_nine_digits() {
        for (time, expected) in [
            ("2026-10-06T00:17:09Z", "2026-10-06T00:17:09.000000000Z"),
            ("2026-10-06T00:17:09.5Z", "2026-10-06T00:17:09.500000000Z"),
            (
                "2026-10-06T00:17:09.669794202+02:00",
                "2026-10-06T00:17:09.669794202+02:00",
            ),
            (
                "2026-10-06T00:17:09.669794+00:00",
                "2026-10-06T00:17:09.669794000Z",
            ),
            (
                "2026-10-06T00:17:09.1234567891Z",
                "2026-10-06T00:17:09.123456789Z",
            ),
        ] {
            assert_eq!(shown(&format!("{time} stdout F x")), expected);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn lines_round_trip(text in proptest::collection::vec(any::<u8>(), 0..200), partial: bool, error: bool) {
            let line = LogLine {
                time: Cow::Borrowed("2026-10-06T00:17:09.669794202Z"),
                at: "2026-10-06T00:17:09.669Z".parse().unwrap(),
                stream: if error { Stream::Stderr } else { Stream::Stdout },
                is_partial: partial,
                text: Cow::Borrowed(&text),
            };
            let mut out = Vec::new();
            line.write_cri(&mut out);
            prop_assert_eq!(out.pop(), Some(b'\n'));
            prop_assert_eq!(LogLine::parse(&out), Some(line));
        }
    }
}
