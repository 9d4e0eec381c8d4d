use std::fs;
use std::path::Path;

use kubevitals_container_logs::{LogLimits, LogLine, Stream};
use kubevitals_kubelet_api::provider::LogOptions;
use proptest::prelude::*;

use crate::{read_all, writer};

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn lines_are_stored_as_containerd_stores_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), LogLimits::default());
    writer.write(Stream::Stdout, b"one\ntw").unwrap();
    writer.write(Stream::Stderr, b"err\n").unwrap();
    writer.write(Stream::Stdout, b"o\nrest").unwrap();
    writer.finish().unwrap();
    assert_eq!(
        fs::read_to_string(folder.path().join("0.log")).unwrap(),
        "2026-01-02T15:04:05.123456789Z stdout F one\n\
         2026-01-02T15:04:06.123456789Z stderr F err\n\
         2026-01-02T15:04:07.123456789Z stdout F two\n\
         2026-01-02T15:04:08.123456789Z stdout P rest\n"
    );
}

#[test]
fn a_torn_line_of_an_earlier_process_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("0.log");
    fs::write(&path, "2026-01-01T00:00:00Z stdout F to").unwrap();
    let mut writer = writer(folder.path(), LogLimits::default());
    writer.write(Stream::Stdout, b"new\n").unwrap();
    writer.finish().unwrap();
    assert_eq!(
        fs::read_to_string(path).unwrap(),
        "2026-01-01T00:00:00Z stdout F to\n2026-01-02T15:04:05.123456789Z stdout F new\n"
    );
}

#[tokio::test]
async fn rotation_keeps_the_newest_files_and_compresses_the_older() {
    let folder = tempfile::tempdir().unwrap();
    let limits = LogLimits {
        max_bytes: 100,
        max_files: 4,
    };
    let mut writer = writer(folder.path(), limits);
    // 45 and some bytes each: three fill a file.
    for index in 0..20 {
        let line = format!("line {index:02}\n");
        writer.write(Stream::Stdout, line.as_bytes()).unwrap();
    }
    writer.finish().unwrap();
    assert_eq!(
        names(folder.path()),
        [
            "0.log",
            "0.log.20260102-150416.gz",
            "0.log.20260102-150419.gz",
            "0.log.20260102-150422",
        ]
    );
    let text = read_all(folder.path(), LogOptions::default()).await;
    let expected: Vec<String> = (9..20).map(|index| format!("line {index:02}")).collect();
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn rotations_within_a_second_have_names_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let limits = LogLimits {
        max_bytes: 10,
        max_files: 10,
    };
    let path = kubevitals_container_logs::LogPath::new(folder.path(), 3);
    let mut writer = kubevitals_container_logs::LogWriter::open_with_clock(path, limits, || {
        std::time::SystemTime::UNIX_EPOCH
    })
    .unwrap();
    writer.write(Stream::Stdout, b"a\nb\nc\n").unwrap();
    writer.finish().unwrap();
    assert_eq!(
        names(folder.path()),
        [
            "3.log",
            "3.log.19700101-000000.gz",
            "3.log.19700101-000001.gz",
            "3.log.19700101-000002",
        ]
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    /// What was written is read back, in whatever parts it was written.
    #[test]
    fn text_round_trips(
        parts in proptest::collection::vec(
            prop_oneof![
                "[a-z\n]{0,40}".prop_map(String::into_bytes),
                (1_usize..40_000).prop_map(|length| vec![b'x'; length]),
                proptest::collection::vec(any::<u8>(), 0..50),
            ],
            0..12,
        ),
        max_bytes in 50_u64..50_000,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let limits = LogLimits { max_bytes, max_files: 60 };
        let mut writer = writer(folder.path(), limits);
        for part in &parts {
            writer.write(Stream::Stdout, part).unwrap();
        }
        writer.finish().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (_end, ended) = tokio::sync::watch::channel(true);
        let path = kubevitals_container_logs::LogPath::new(folder.path(), 0);
        let read = runtime.block_on(async {
            let stream = kubevitals_container_logs::read(path, LogOptions::default(), ended).await.unwrap();
            let parts: Vec<_> = futures_util::StreamExt::collect(stream).await;
            parts.into_iter().flat_map(|part| part.unwrap().to_vec()).collect::<Vec<u8>>()
        });
        prop_assert_eq!(read, parts.concat());
        for line in fs::read(folder.path().join("0.log")).unwrap().split_inclusive(|byte| *byte == b'\n') {
            prop_assert!(LogLine::parse(&line[..line.len() - 1]).is_some());
            prop_assert!(line.len() <= (16 << 10) + 64);
        }
    }
}
