use proptest::prelude::*;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::*;

fn read<'de, T: Deserialize<'de>>(text: &'de [u8]) -> Result<T, Error> {
    let mut json = Json::new(text);
    let value = T::deserialize(&mut json)?;
    json.end()?;
    Ok(value)
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,20}".prop_map(Value::from),
        "[\"\\\\\n{}\\[\\],:a]{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map("\\PC{0,10}|[\"\\\\{}a]{0,4}", inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

#[test]
fn invalid_json_is_rejected() {
    for text in [
        "",
        "{",
        "}",
        "[",
        "[1",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{a:1}",
        "{\"a\" 1}",
        "tru",
        "nul",
        "+1",
        "01",
        "1.",
        "-",
        "\"",
        "\"\\\"",
        "\"\\x\"",
        "\"a\nb\"",
        "1 2",
        "[}",
        "{]",
    ] {
        assert!(read::<Value>(text.as_bytes()).is_err(), "{text}");
        assert!(serde_json::from_str::<Value>(text).is_err(), "{text}");
    }
    assert!(read::<Value>(b"\"\xff\"").is_err());
    assert!(read::<Value>(b"{\"\xff\":1}").is_err());
}

#[test]
fn skipped_values_must_be_well_bracketed() {
    for text in [
        "{\"a\":[{}]}",
        "[\"]\",\"\\\"]\"]",
        "\"a\\\\\"",
        "-1.5e3",
        "null",
        "[[[[]]]]",
        " {} ",
    ] {
        assert!(read::<IgnoredAny>(text.as_bytes()).is_ok(), "{text}");
    }
    for text in [
        "",
        "{",
        "[\"]",
        "{\"a\":[}",
        ",",
        "]",
        "\"a\\\"",
        "{} {}",
        "2\"a\"",
    ] {
        assert!(read::<IgnoredAny>(text.as_bytes()).is_err(), "{text}");
    }
    // Deeper than any stack.
    let deep = "[".repeat(1_000_000) + &"]".repeat(1_000_000);
    assert!(read::<IgnoredAny>(deep.as_bytes()).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn everything_is_read_as_serde_json_reads_it(value in value(), is_pretty: bool) {
        let text = if is_pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
        let text = text.unwrap();
        prop_assert_eq!(read::<Value>(text.as_bytes()).unwrap(), serde_json::from_str::<Value>(&text).unwrap());
        prop_assert!(read::<IgnoredAny>(text.as_bytes()).is_ok());
        let pair = format!("[{text},7]");
        prop_assert_eq!(read::<(IgnoredAny, u8)>(pair.as_bytes()).unwrap().1, 7);
    }

    #[test]
    fn any_text_is_taken_or_refused_as_by_serde_json(text in "[\\[\\]{}:,\"\\\\a10.e\\- nulltrue]{0,12}") {
        let (own, other) = (read::<Value>(text.as_bytes()), serde_json::from_str::<Value>(&text));
        prop_assert_eq!(own.ok(), other.ok());
    }

    #[test]
    fn quotes_are_found_wherever_they_are(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let expected = bytes.iter().position(|byte| matches!(byte, b'"' | b'\\'));
        prop_assert_eq!(quote_or_backslash(&bytes), expected);
    }
}
