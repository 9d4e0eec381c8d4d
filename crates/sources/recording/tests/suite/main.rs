//! Recordings as they come, and as they should not.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{self, Read};

use kubevitals_recording::{
    Item, MAX_OBJECT, Piece, RecordedObject, Recording, RecordingError, Splitter,
};
use kubevitals_watch::{Decoder, EventType};
use proptest::prelude::*;

const PODS: &str = include_str!("../../../watch/tests/fixtures/pods.watch.jsonl");
const EVENTS: &str = include_str!("../../../watch/tests/fixtures/events.watch.jsonl");

fn read(text: impl AsRef<[u8]>) -> Vec<Item> {
    Recording::new(text.as_ref(), Decoder::default(), MAX_OBJECT).collect()
}

/// Describes an item in one line.
fn describe(item: &Item) -> String {
    match &item.object {
        Ok(RecordedObject::Pod(seen)) => format!(
            "{:?} {} {:?}",
            seen.event, seen.object.summary.identity, seen.written
        ),
        Ok(RecordedObject::Event(seen)) => format!(
            "{:?} {} {:?}",
            seen.event, seen.object.identity, seen.written
        ),
        Ok(RecordedObject::Ended(status)) => format!("ended {}", status.code),
        Ok(RecordedObject::Other(kind)) => format!("other {kind}"),
        Err(error) => format!("{}: {error}", item.offset),
    }
}

fn all(text: impl AsRef<[u8]>) -> Vec<String> {
    read(text).iter().map(describe).collect()
}

fn pretty(lines: &str) -> String {
    lines
        .lines()
        .map(|line| {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            serde_json::to_string_pretty(&value).unwrap() + "\n"
        })
        .collect()
}

#[test]
fn the_layout_of_objects_makes_no_difference() {
    let lines = all(PODS);
    assert_eq!(lines.len(), 153);
    assert!(
        lines[0].starts_with("Added default/quick-97wrd Some("),
        "{}",
        lines[0]
    );
    assert_eq!(all(pretty(PODS)), lines);
    assert_eq!(all(PODS.replace('\n', "")), lines);
    assert_eq!(all(PODS.replace('\n', "\r\n\r\n")), lines);
    let both: Vec<String> = [lines, all(EVENTS)].concat();
    assert_eq!(all(format!("{PODS}{}", pretty(EVENTS))), both);
    assert_eq!(both.len(), 153 + 197);
}

#[test]
fn the_newest_managed_field_is_the_time_of_a_state() {
    let items = read(PODS);
    let Ok(RecordedObject::Pod(seen)) = &items[98].object else {
        panic!("{:?}", items[98]);
    };
    assert_eq!(
        seen.written.unwrap().to_string(),
        "2026-11-15T20:12:19.000Z"
    );
}

#[test]
fn invalid_objects_are_reported_and_affect_only_themselves() {
    let pod = |name: &str| {
        format!(
            "{{\"type\":\"ADDED\",\"object\":{{\"kind\":\"Pod\",\"metadata\":{{\"name\":\"{name}\"}}}}}}\n"
        )
    };
    let (one, two, three) = (pod("one"), pod("two"), pod("three"));
    let (cut, _) = two.split_at(two.len() - 10);
    assert_eq!(
        all(format!("{one}{cut}\n{three}")),
        [
            "Added one None".to_owned(),
            format!(
                "{}: object is truncated after {} bytes",
                one.len(),
                cut.len() + 1
            ),
            "Added three None".to_owned(),
        ]
    );
    // A string that does not end, with brackets in it.
    let open = one.replace("\"one\"", "\"one}}}");
    assert_eq!(all(format!("{open}{two}")).len(), 2);
    assert_eq!(all(format!("{open}{two}"))[1], "Added two None");
    assert_eq!(
        all(format!("error: lost connection\n{one}[1,2]\n{two}")),
        [
            "0: 22 bytes are not a JSON object".to_owned(),
            "Added one None".to_owned(),
            format!("{}: 5 bytes are not a JSON object", 23 + one.len()),
            "Added two None".to_owned(),
        ]
    );
    let wrong = one.replace("\"one\"", "\"one\",\"labels\":[]");
    let said = &all(format!("{wrong}{two}"));
    assert!(
        said[0].starts_with("0: failed to decode object /one")
            || said[0].starts_with("0: failed to decode watch event"),
        "{said:?}"
    );
    assert_eq!(said[1], "Added two None");
    assert_eq!(all("{\"a\":1}"), ["0: response has no type"]);
}

#[test]
fn text_that_is_not_utf8_is_recognised() {
    let wide: Vec<u8> = "\u{feff}{}\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    assert!(all(wide)[0].contains("UTF-16"));
}

#[test]
fn other_kinds_are_recognized() {
    let status =
        "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410,\"reason\":\"Expired\"}}";
    assert_eq!(all(status), ["ended 410"]);
    assert_eq!(all("{\"kind\":\"Status\",\"code\":500}"), ["ended 500"]);
    let bookmark = "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"Pod\",\"metadata\":{\"resourceVersion\":\"7\"}}}";
    assert_eq!(all(bookmark), ["other Bookmark"]);
    let node = "{\"type\":\"ADDED\",\"object\":{\"kind\":\"Node\",\"metadata\":{\"name\":\"n\"}}}";
    assert_eq!(all(node), ["other Node"]);
    let bare = "{\"kind\":\"Pod\",\"metadata\":{\"name\":\"a\"}}";
    assert_eq!(all(bare), ["Modified a None"]);
    let list = format!(
        "{{\"kind\":\"List\",\"items\":[{bare},{{\"kind\":\"Event\",\"metadata\":{{\"name\":\"e\"}}}},{bare}]}}"
    );
    assert_eq!(
        all(list),
        ["Modified a None", "Modified e None", "Modified a None"]
    );
}

#[test]
fn an_object_beyond_the_limit_is_reported_and_not_buffered() {
    let large = format!(
        "{{\"type\":\"ADDED\",\"object\":{{\"a\":\"{}\"}}}}",
        "x".repeat(300_000)
    );
    let small = "{\"kind\":\"Pod\",\"metadata\":{\"name\":\"a\"}}";
    let text = format!("{large}\n{small}\n");
    let items: Vec<Item> = Recording::new(text.as_bytes(), Decoder::default(), 1_000).collect();
    assert!(
        matches!(items[0].object, Err(RecordingError::TooLarge { length, limit: 1_000 }) if length == large.len() as u64)
    );
    assert!(
        matches!(&items[1].object, Ok(RecordedObject::Pod(seen)) if seen.event == EventType::Modified)
    );
    assert_eq!(items.len(), 2);
}

#[test]
fn a_truncated_file_yields_its_objects_and_an_error() {
    struct Broken<'t>(&'t [u8]);
    impl Read for Broken<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.read(buffer)? {
                0 => Err(io::Error::other("the disk is gone")),
                length => Ok(length),
            }
        }
    }
    let text = "{\"kind\":\"Pod\",\"metadata\":{\"name\":\"a\"}}\n{\"kind\":";
    let items: Vec<String> = Recording::new(Broken(text.as_bytes()), Decoder::default(), 1_000)
        .map(|item| describe(&item))
        .collect();
    assert_eq!(
        items,
        [
            "Modified a None".to_owned(),
            "39: object is truncated after 8 bytes".to_owned(),
            "47: failed to read: the disk is gone".to_owned(),
        ]
    );
}

/// Pieces with their bytes counted, from a text that comes in these chunks.
fn pieces(chunks: &[&[u8]], limit: usize) -> Vec<String> {
    let mut splitter = Splitter::new(limit);
    let mut found = Vec::new();
    let mut take = |piece: Piece<'_>| found.push(format!("{piece:?}"));
    for chunk in chunks {
        splitter.feed(chunk, &mut take);
    }
    splitter.end(&mut take);
    found
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_split_gives_the_same_pieces(
        text in "[{}\\[\\]\"\\\\\n a]{0,60}",
        cuts in prop::collection::vec(0_usize..60, 0..8),
        limit in 1_usize..30,
    ) {
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|&cut| cut < text.len()).collect();
        cuts.sort_unstable();
        let mut chunks = Vec::new();
        let mut from = 0;
        for cut in cuts {
            chunks.push(&text.as_bytes()[from..cut]);
            from = cut;
        }
        chunks.push(&text.as_bytes()[from..]);
        prop_assert_eq!(pieces(&chunks, limit), pieces(&[text.as_bytes()], limit));
    }
}
