use std::fs;

use kubevitals_container_logs::{LogLimits, LogPath, Stream, read};
use kubevitals_kubelet_api::provider::LogOptions;
use tokio::sync::watch;

use crate::{collect, read_until, writer};

fn follow() -> LogOptions {
    LogOptions {
        follow: true,
        ..LogOptions::default()
    }
}

#[tokio::test]
async fn lines_are_followed_until_the_container_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), LogLimits::default());
    writer.write(Stream::Stdout, b"one\n").unwrap();
    let (end, ended) = watch::channel(false);
    let mut stream = read(LogPath::new(folder.path(), 0), follow(), ended)
        .await
        .unwrap();
    read_until(&mut stream, "one\n").await;
    writer.write(Stream::Stdout, b"two\nhalf").unwrap();
    read_until(&mut stream, "two\n").await;
    writer.finish().unwrap();
    end.send(true).unwrap();
    assert_eq!(collect(stream).await, "half");
}

#[tokio::test]
async fn a_follower_ends_with_the_sender_of_the_end() {
    let folder = tempfile::tempdir().unwrap();
    crate::write_lines(folder.path(), &["one", "two"]);
    let (end, ended) = watch::channel(false);
    let options = LogOptions {
        tail_lines: Some(1),
        ..follow()
    };
    let stream = read(LogPath::new(folder.path(), 0), options, ended)
        .await
        .unwrap();
    drop(end);
    assert_eq!(collect(stream).await, "two\n");
}

/// Lines of every file between two reads are shown, however often the log was rotated meanwhile.
#[tokio::test]
async fn a_follower_reads_on_across_rotation() {
    let folder = tempfile::tempdir().unwrap();
    let limits = LogLimits {
        max_bytes: 200,
        max_files: 20,
    };
    let mut writer = writer(folder.path(), limits);
    writer.write(Stream::Stdout, b"first\n").unwrap();
    let (end, ended) = watch::channel(false);
    let mut stream = read(LogPath::new(folder.path(), 0), follow(), ended)
        .await
        .unwrap();
    read_until(&mut stream, "first\n").await;
    let mut expected = String::new();
    for index in 0..8 {
        let line = format!("line {index}\n");
        writer.write(Stream::Stdout, line.as_bytes()).unwrap();
        expected.push_str(&line);
    }
    read_until(&mut stream, &expected).await;
    for index in 8..30 {
        let line = format!("line {index}\n");
        writer.write(Stream::Stdout, line.as_bytes()).unwrap();
        read_until(&mut stream, &line).await;
    }
    writer.finish().unwrap();
    assert!(fs::read_dir(folder.path()).unwrap().count() > 5);
    end.send(true).unwrap();
    assert_eq!(collect(stream).await, "");
}

#[tokio::test]
async fn a_truncated_file_is_read_from_its_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), LogLimits::default());
    writer
        .write(Stream::Stdout, b"a line that is long enough\n")
        .unwrap();
    let (_end, ended) = watch::channel(false);
    let mut stream = read(LogPath::new(folder.path(), 0), follow(), ended)
        .await
        .unwrap();
    read_until(&mut stream, "a line that is long enough\n").await;
    let path = folder.path().join("0.log");
    fs::write(&path, "2026-01-01T00:00:00Z stdout F short\n").unwrap();
    read_until(&mut stream, "short\n").await;
}

#[tokio::test]
async fn a_follower_ends_with_the_folder() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("app");
    crate::write_lines(&folder, &["one"]);
    let (_end, ended) = watch::channel(false);
    let mut stream = read(LogPath::new(&folder, 0), follow(), ended)
        .await
        .unwrap();
    read_until(&mut stream, "one\n").await;
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(collect(stream).await, "");
}
