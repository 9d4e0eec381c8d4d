use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::symlink;

use flate2::Compression;
use flate2::write::GzEncoder;
use kubevitals_container_logs::{LogLimits, LogPath, Stream, read};
use kubevitals_kubelet_api::provider::{LogOptions, LogStream};
use tokio::sync::watch;

use crate::{read_all, write_lines, writer};

fn options() -> LogOptions {
    LogOptions::default()
}

#[tokio::test]
async fn all_lines_are_read() {
    let folder = tempfile::tempdir().unwrap();
    write_lines(folder.path(), &["one", "", "three"]);
    assert_eq!(read_all(folder.path(), options()).await, "one\n\nthree\n");
}

#[tokio::test]
async fn the_tail_counts_stored_lines_across_rotated_files() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("0.log.20260101-000000"),
        "2026-01-01T00:00:00Z stdout F b1\n2026-01-01T00:00:01Z stdout F b2\n",
    )
    .unwrap();
    let file = fs::File::create(folder.path().join("0.log.20251231-000000.gz")).unwrap();
    let mut gzip = GzEncoder::new(file, Compression::default());
    gzip.write_all(b"2025-12-31T00:00:00Z stdout F a1\n2025-12-31T00:00:01Z stdout F a2\n")
        .unwrap();
    gzip.finish().unwrap();
    // Neither is a rotated file of this instance.
    fs::write(folder.path().join("0.log.20260101-000000.tmp"), "x").unwrap();
    fs::write(folder.path().join("1.log.20260101-000000"), "x").unwrap();
    write_lines(folder.path(), &["c1", "c2"]);
    for (tail, expected) in [
        (None, "a1\na2\nb1\nb2\nc1\nc2\n"),
        (Some(0), ""),
        (Some(1), "c2\n"),
        (Some(2), "c1\nc2\n"),
        (Some(3), "b2\nc1\nc2\n"),
        (Some(5), "a2\nb1\nb2\nc1\nc2\n"),
        (Some(100), "a1\na2\nb1\nb2\nc1\nc2\n"),
    ] {
        let options = LogOptions {
            tail_lines: tail,
            ..options()
        };
        assert_eq!(read_all(folder.path(), options).await, expected, "{tail:?}");
    }
}

#[tokio::test]
async fn a_long_tail_is_found_over_many_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let lines: Vec<String> = (0..20_000).map(|index| format!("line {index}")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    write_lines(folder.path(), &lines);
    let options = LogOptions {
        tail_lines: Some(15_000),
        ..options()
    };
    let text = read_all(folder.path(), options).await;
    assert!(text.starts_with("line 5000\n"), "{text:.20}");
    assert_eq!(text.lines().count(), 15_000);
}

#[tokio::test]
async fn since_is_inclusive() {
    let folder = tempfile::tempdir().unwrap();
    write_lines(folder.path(), &["5", "6", "7"]);
    let options = LogOptions {
        since: Some("2026-01-02T15:04:06.123Z".parse().unwrap()),
        ..options()
    };
    assert_eq!(read_all(folder.path(), options).await, "6\n7\n");
}

#[tokio::test]
async fn timestamps_are_at_the_starts_of_lines_only_and_count_as_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), LogLimits::default());
    let long = "x".repeat(16 << 10);
    writer
        .write(Stream::Stdout, format!("{long}yz\nnext\n").as_bytes())
        .unwrap();
    writer.finish().unwrap();
    let all = LogOptions {
        timestamps: true,
        ..options()
    };
    let expected =
        format!("2026-01-02T15:04:05.123456789Z {long}yz\n2026-01-02T15:04:07.123456789Z next\n");
    assert_eq!(read_all(folder.path(), all.clone()).await, expected);
    for limit in [1, 31, 32, 16_500, 1 << 20] {
        let limited = LogOptions {
            limit_bytes: Some(limit),
            ..all.clone()
        };
        let text = read_all(folder.path(), limited).await;
        let limit = usize::try_from(limit).unwrap().min(expected.len());
        assert_eq!(text, expected.get(..limit).unwrap());
    }
}

#[tokio::test]
async fn one_stream_can_be_selected() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), LogLimits::default());
    writer.write(Stream::Stdout, b"out\n").unwrap();
    writer.write(Stream::Stderr, b"err\n").unwrap();
    writer.finish().unwrap();
    for (stream, expected) in [
        (LogStream::All, "out\nerr\n"),
        (LogStream::Stdout, "out\n"),
        (LogStream::Stderr, "err\n"),
    ] {
        let options = LogOptions {
            stream,
            ..options()
        };
        assert_eq!(read_all(folder.path(), options).await, expected);
    }
}

#[tokio::test]
async fn a_bad_line_costs_only_itself_and_an_overlong_one_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    let long = "y".repeat(3 << 20);
    fs::write(
        folder.path().join("0.log"),
        format!(
            "garbage \u{fffd}\n2026-01-01T00:00:00Z stdout F {long}\n2026-01-01T00:00:00Z stdout F good\n\
             2026-01-01T00:00:00Z stdout F last"
        ),
    )
    .unwrap();
    let text = read_all(folder.path(), options()).await;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[1..], ["good", "last"]);
    assert!(lines[0].len() < 2 << 20, "{}", lines[0].len());
    assert!(lines[0].bytes().all(|byte| byte == b'y'));
}

#[tokio::test]
async fn a_file_in_another_format_is_an_error_and_is_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("0.log"), "root:x:0:0::/root:/bin/sh\n").unwrap();
    let (_end, ended) = watch::channel(true);
    let mut stream = read(LogPath::new(folder.path(), 0), options(), ended)
        .await
        .unwrap();
    let error = futures_util::StreamExt::next(&mut stream)
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert!(!error.to_string().contains("root:"), "{error}");
}

#[tokio::test]
async fn links_are_followed_to_docker_logs_inside_the_root_only() {
    let root = tempfile::tempdir().unwrap();
    let docker = root.path().join("var/lib/docker/containers/abc");
    let folder = root.path().join("var/log/pods/app");
    fs::create_dir_all(&docker).unwrap();
    fs::create_dir_all(&folder).unwrap();
    fs::write(
        docker.join("abc-json.log"),
        "{\"log\":\"from docker\\n\",\"stream\":\"stdout\",\"time\":\"2026-01-01T00:00:00Z\"}\n",
    )
    .unwrap();
    symlink(
        "/var/lib/docker/containers/abc/abc-json.log",
        folder.join("0.log"),
    )
    .unwrap();
    symlink("/etc/passwd", folder.join("1.log")).unwrap();
    symlink("../../../../../../../../x-json.log", folder.join("2.log")).unwrap();
    let open = |instance| {
        let (_end, ended) = watch::channel(true);
        let path = LogPath::new(&folder, instance).with_root(root.path());
        read(path, options(), ended)
    };
    let text = crate::collect(open(0).await.unwrap()).await;
    assert_eq!(text, "from docker\n");
    assert_eq!(open(1).await.err().unwrap().kind(), ErrorKind::InvalidInput);
    assert_eq!(open(2).await.err().unwrap().kind(), ErrorKind::NotFound);
    assert_eq!(open(3).await.err().unwrap().kind(), ErrorKind::NotFound);
    assert_eq!(LogPath::instances(&folder).unwrap(), [0, 1, 2]);
}

#[tokio::test]
async fn a_pipe_in_place_of_a_log_does_not_block() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("0.log");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let (_end, ended) = watch::channel(true);
    let result = read(LogPath::new(folder.path(), 0), options(), ended).await;
    assert_eq!(result.err().unwrap().kind(), ErrorKind::InvalidInput);
}
