use std::time::Duration;

use kubevitals_model::{GoDuration, ModelError};
use proptest::prelude::*;

use crate::config;
use crate::vectors::{rows, rows_of};

#[test]
fn texts_are_parsed_as_in_go() {
    for fields in rows(include_str!("../vectors/duration_parse.tsv")) {
        match fields[..] {
            [input, "err", kind] => {
                let error = input.parse::<GoDuration>().expect_err(input);
                let ours = match error {
                    ModelError::DurationInvalid { .. } | ModelError::DurationOutOfRange { .. } => {
                        "invalid"
                    }
                    ModelError::DurationUnitMissing { .. } => "missing",
                    ModelError::DurationUnitUnknown { .. } => "unknown",
                    _ => "other",
                };
                assert_eq!(ours, kind, "{input}");
            }
            [input, nanoseconds] => {
                let duration: GoDuration = input.parse().unwrap_or_else(|error| panic!("{error}"));
                assert_eq!(duration.as_nanos().to_string(), nanoseconds, "{input}");
            }
            _ => panic!("unexpected line {fields:?}"),
        }
    }
}

#[test]
fn durations_print_as_in_go() {
    for [nanoseconds, text] in rows_of(include_str!("../vectors/duration_string.tsv")) {
        assert_eq!(
            GoDuration::from_nanos(nanoseconds.parse().unwrap()).to_string(),
            text
        );
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_is_printed_is_read_back(bits in any::<i64>(), shift in 0_u32..63) {
        let duration = GoDuration::from_nanos(bits >> shift);
        let text = duration.to_string();
        prop_assert_eq!(text.parse(), Ok(duration));
        let mut out = Vec::new();
        duration.write_to(&mut out);
        prop_assert_eq!(out, text.into_bytes());
    }

    #[test]
    fn arbitrary_text_is_read_or_refused(text in any::<String>()) {
        let _ = text.parse::<GoDuration>();
    }

    #[test]
    fn text_of_the_right_letters_is_read_or_refused(text in "[-+]?([0-9]{0,22}\\.?[0-9]{0,22}[nuµμmsh]{0,2}){0,3}") {
        if let Ok(duration) = text.parse::<GoDuration>() {
            prop_assert_eq!(duration.to_string().parse(), Ok(duration));
        }
    }

    #[test]
    fn conversions_keep_the_time(nanoseconds in any::<u64>()) {
        let duration = Duration::from_nanos(nanoseconds);
        match GoDuration::try_from(duration) {
            Ok(go) => prop_assert_eq!(Duration::try_from(go), Ok(duration)),
            Err(_) => prop_assert!(i64::try_from(nanoseconds).is_err()),
        }
    }
}
