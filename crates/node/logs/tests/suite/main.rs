//! Logs, written and read back.
#![expect(clippy::unwrap_used, reason = "helpers fail by panicking")]

mod follow;
mod read;
mod write;

use std::path::Path;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use kubevitals_container_logs::{LogLimits, LogPath, LogWriter, Stream, read};
use kubevitals_kubelet_api::provider::LogOptions;
use tokio::sync::watch;

/// A regression fails by this deadline instead of hanging.
const DEADLINE: Duration = Duration::from_mins(1);

/// A writer whose clock starts at 2026-01-02T15:04:05Z and advances by a second with each line.
fn writer(folder: &Path, limits: LogLimits) -> LogWriter {
    let mut now = SystemTime::UNIX_EPOCH + Duration::new(1_767_366_244, 123_456_789);
    LogWriter::open_with_clock(LogPath::new(folder, 0), limits, move || {
        now += Duration::from_secs(1);
        now
    })
    .unwrap()
}

/// Writes complete lines to `stdout`.
fn write_lines(folder: &Path, lines: &[&str]) {
    let mut writer = writer(folder, LogLimits::default());
    for line in lines {
        writer
            .write(Stream::Stdout, format!("{line}\n").as_bytes())
            .unwrap();
    }
    writer.finish().unwrap();
}

/// Reads a log to its end.
async fn read_all(folder: &Path, options: LogOptions) -> String {
    let (_end, ended) = watch::channel(true);
    let stream = read(LogPath::new(folder, 0), options, ended).await.unwrap();
    collect(stream).await
}

async fn collect(mut stream: BoxStream<'static, std::io::Result<Bytes>>) -> String {
    let mut text = Vec::new();
    let all = async {
        while let Some(part) = stream.next().await {
            text.extend_from_slice(&part.unwrap());
        }
    };
    tokio::time::timeout(DEADLINE, all).await.unwrap();
    String::from_utf8(text).unwrap()
}

/// Reads until the text is there.
async fn read_until(stream: &mut BoxStream<'static, std::io::Result<Bytes>>, expected: &str) {
    let mut text = Vec::new();
    let all = async {
        while text.len() < expected.len() {
            text.extend_from_slice(&stream.next().await.unwrap().unwrap());
        }
    };
    tokio::time::timeout(DEADLINE, all).await.unwrap();
    assert_eq!(String::from_utf8(text).unwrap(), expected);
}
