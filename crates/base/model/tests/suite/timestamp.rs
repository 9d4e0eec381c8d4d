use kubevitals_model::Timestamp;
use proptest::prelude::*;

use crate::config;
use crate::vectors::rows_of;

#[test]
fn instants_print_as_in_go() {
    for [milliseconds, seconds_text, millis_text] in
        rows_of(include_str!("../vectors/time_format.tsv"))
    {
        let timestamp = Timestamp::from_unix_millis(milliseconds.parse().unwrap());
        assert_eq!(timestamp.rfc3339_seconds().to_string(), seconds_text);
        assert_eq!(
            timestamp.rfc3339_millis().as_bytes(),
            millis_text.as_bytes()
        );
    }
}

#[test]
fn texts_are_parsed_as_in_go() {
    for [input, expected] in rows_of(include_str!("../vectors/time_parse.tsv")) {
        let read = input.parse::<Timestamp>();
        let ours = read.map_or_else(|_| "err".to_owned(), |t| t.unix_millis().to_string());
        assert_eq!(ours, expected, "{input}");
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_is_printed_is_read_back(milliseconds in -62_167_219_200_000_i64..253_402_300_800_000) {
        let timestamp = Timestamp::from_unix_millis(milliseconds);
        prop_assert_eq!(timestamp.to_string().parse(), Ok(timestamp));
        let seconds = timestamp.rfc3339_seconds().to_string().parse::<Timestamp>().unwrap();
        prop_assert_eq!(seconds.unix_millis(), milliseconds.div_euclid(1000) * 1000);
    }

    #[test]
    fn every_instant_can_be_printed(milliseconds in any::<i64>()) {
        let text = Timestamp::from_unix_millis(milliseconds).to_string();
        prop_assert!(text.ends_with('Z') && text.len() >= "1970-01-01T00:00:00.000Z".len());
    }

    #[test]
    fn texts_of_four_digit_years_sort_as_their_instants(a in -62_167_219_200_000_i64..253_402_300_800_000, b in -62_167_219_200_000_i64..253_402_300_800_000) {
        let (first, second) = (Timestamp::from_unix_millis(a), Timestamp::from_unix_millis(b));
        prop_assert_eq!(first.to_string().cmp(&second.to_string()), a.cmp(&b));
    }

    #[test]
    fn arbitrary_text_is_read_or_refused(text in any::<String>()) {
        let _ = text.parse::<Timestamp>();
    }

    #[test]
    fn text_of_the_right_shape_is_read_or_refused(text in "[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2]?[0-9]:[0-6][0-9]:[0-6][0-9]([.,][0-9]{0,12})?(Z|[-+][0-2][0-9]:[0-6][0-9])") {
        if let Ok(timestamp) = text.parse::<Timestamp>() {
            let milliseconds = timestamp.unix_millis();
            let two_days = 2 * 86_400_000;
            prop_assert!((-62_167_219_200_000 - two_days..253_402_300_800_000 + two_days).contains(&milliseconds));
        }
    }
}
