use proptest::prelude::*;

use super::*;

fn prometheus(open_metrics: &str) -> String {
    String::from_utf8(Format::Prometheus.render(open_metrics)).unwrap()
}

fn open_metrics(text: &str) -> String {
    String::from_utf8(Format::OpenMetrics.render(text)).unwrap()
}

const EVERY_KIND: &str = r#"# HELP zoo_animals Animals, counted "by hand" \ daily.
# TYPE zoo_animals counter
# UNIT zoo_animals animals
zoo_animals_total{kind="b",cage="2"} 10 # {trace="x"} 1.0 1700000000.5
zoo_animals_total{kind="a",cage="2"} 1000000 1700000000.1234
zoo_animals_created{kind="a",cage="2"} 1700000000.0
# HELP age_seconds Ages.
# TYPE age_seconds histogram
age_seconds_sum 7.0
age_seconds_count 3
age_seconds_bucket{le="1.0"} 1
age_seconds_bucket{le="10.0"} 2 # {} 2.5
age_seconds_bucket{le="0.5"} 0
age_seconds_bucket{le="+Inf"} 3
# TYPE build info
build_info{version="1\"\\\n"} 1
# TYPE door stateset
door{door="open"} 1
door{door="shut"} 0
# HELP odd Things.
# TYPE odd unknown
odd{} NaN
# TYPE wait summary
wait_count 2
wait_sum 3.5
wait{quantile="0.5"} 1.5
# EOF
"#;

#[test]
fn every_kind_in_the_older_form() {
    insta::assert_snapshot!(prometheus(EVERY_KIND));
}

#[test]
fn open_metrics_keeps_its_lines_and_sorts_its_families() {
    let text = open_metrics(EVERY_KIND);
    let lines = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(lines(&text), lines(EVERY_KIND));
    let types: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .collect();
    assert!(types.is_sorted(), "{types:?}");
    assert!(text.ends_with("\n# EOF\n"));
    assert_eq!(open_metrics(&text), text);
}

#[test]
fn families_of_one_name_are_joined() {
    let text = "# HELP x X.\n# TYPE x gauge\nx{role=\"b\"} 1\n# TYPE y gauge\ny 1\n\
                # HELP x X.\n# TYPE x gauge\nx{role=\"a\"} 2\n# EOF\n";
    assert_eq!(
        open_metrics(text),
        "# HELP x X.\n# TYPE x gauge\nx{role=\"b\"} 1\nx{role=\"a\"} 2\n# TYPE y gauge\ny 1\n# EOF\n"
    );
    assert_eq!(
        prometheus(text),
        "# HELP x X.\n# TYPE x gauge\nx{role=\"a\"} 2\nx{role=\"b\"} 1\n# TYPE y gauge\ny 1\n"
    );
}

#[test]
fn a_bad_line_costs_only_itself() {
    let text = "# TYPE x gauge\nx{a=\"1\"} 1\nx{a=\"2} 1\nx{a} 1\nx{a=\"3\"} one\nx\nx{a=\"4\"}\n\
                y 7\n{} 1\n# TYPE\n#\nx{a=\"5\"} 5\n";
    assert_eq!(
        prometheus(text),
        "# TYPE x gauge\nx{a=\"1\"} 1\nx{a=\"5\"} 5\n# TYPE y untyped\ny 7\n"
    );
}

#[test]
fn names_and_types_are_listed_as_scraped() {
    assert_eq!(
        family_names(EVERY_KIND),
        [
            "histogram age_seconds",
            "gauge build_info",
            "gauge door",
            "untyped odd",
            "summary wait",
            "counter zoo_animals_total",
        ]
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_renders(text in "\\PC{0,200}|([a-z#{}=\", \n\\\\0-9.]{0,80})") {
        prometheus(&text);
        let once = open_metrics(&text);
        prop_assert_eq!(open_metrics(&once), once);
    }

    #[test]
    fn any_text_made_of_the_right_pieces_renders(
        pieces in proptest::collection::vec(
            prop_oneof![
                Just("# TYPE a counter\n"), Just("# TYPE a histogram\n"), Just("# HELP a \\\n"),
                Just("a_total"), Just("a_bucket"), Just("{le=\"0.5\""), Just("{"), Just("}"),
                Just("\""), Just("\\"), Just(" 1"), Just(" NaN"), Just(" # {} 1"), Just("\n"), Just(","),
            ],
            0..60,
        )
    ) {
        prometheus(&pieces.concat());
    }
}
