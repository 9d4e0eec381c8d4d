use super::*;
use crate::error::Reason;

const A: LabelName<'_> = LabelName::from_static("a");
const LE: LabelName<'_> = LabelName::from_static("le");
const M: MetricName<'_> = MetricName::from_static("m");

fn encoded(document: &mut Document<'_>) -> String {
    let mut out = Vec::new();
    document.encode(&mut out);
    String::from_utf8(out).unwrap()
}

fn reencoded(body: &str) -> String {
    encoded(&mut Document::parse(body.as_bytes()))
}

#[test]
fn histograms_and_summaries_keep_their_order_while_families_are_sorted() {
    let histogram = "# TYPE h histogram\nh_bucket{z=\"1\",le=\"2\"} 1\nh_bucket{z=\"1\",le=\"10\"} 2\n\
        h_bucket{z=\"1\",le=\"+Inf\"} 2\nh_sum{z=\"1\"} 7\nh_count{z=\"1\"} 2\n";
    let summary =
        "# TYPE s summary\ns{z=\"1\",quantile=\"0.5\"} 1\ns_sum{z=\"1\"} 2\ns_count{z=\"1\"} 2\n";
    let gauge = "# TYPE g gauge\ng 1\n";
    assert_eq!(
        reencoded(&[summary, histogram, gauge].concat()),
        [gauge, histogram, summary].concat()
    );
}

#[test]
fn a_suffix_belongs_to_a_family_only_if_its_type_has_it() {
    // No type, a gauge, buckets of a summary: separate families.
    for body in [
        "a 1\na_sum 2\n",
        "# TYPE a gauge\na 1\na_count 2\n",
        "# TYPE a summary\na_count 2\na_bucket{le=\"1\"} 2\n",
        "a_sum 2\n",
    ] {
        assert_eq!(reencoded(body), body);
    }
}

#[test]
fn samples_before_the_type_of_their_family_belong_to_it() {
    let body = "a_sum{z=\"1\"} 2\nb 1\n# TYPE a histogram\na_count{z=\"1\"} 4\n";
    let sorted = "# TYPE a histogram\na_count{z=\"1\"} 4\na_sum{z=\"1\"} 2\nb 1\n";
    assert_eq!(reencoded(body), sorted);
    assert_eq!(reencoded(sorted), sorted);
    let mut document = Document::parse(body.as_bytes());
    let names: Vec<_> = document.families().iter().map(Family::name).collect();
    assert_eq!(names, ["b", "a"]);
    document
        .family(MetricName::from_static("b"))
        .add([(A, "")], 2.0, None)
        .unwrap();
    assert_eq!(encoded(&mut document), format!("{sorted}b{{a=\"\"}} 2\n"));
    // One with its own metadata stays separate.
    let body = "# TYPE a histogram\na_count 4\n# TYPE a_sum gauge\na_sum 2\n";
    assert_eq!(reencoded(body), body);
}

#[test]
fn an_order_can_be_set() {
    let mut document = Document::new();
    let mut family = document.family(M);
    family.set_order(Order::AsGiven);
    family.add([(LE, "2"), (A, "x")], 1.0, None).unwrap();
    family.add([(A, "a")], 2.0, None).unwrap();
    assert_eq!(
        encoded(&mut document),
        "m{le=\"2\",a=\"x\"} 1\nm{a=\"a\"} 2\n"
    );
    document.family(M).set_order(Order::Sorted);
    assert_eq!(
        encoded(&mut document),
        "m{a=\"a\"} 2\nm{a=\"x\",le=\"2\"} 1\n"
    );
}

#[test]
fn equal_label_sets_sort_by_timestamp_with_none_last() {
    let body = "m 1\nm 2 5\nm 3 -5\nm 4\nm 5 5\n";
    assert_eq!(reencoded(body), "m 3 -5\nm 2 5\nm 5 5\nm 1\nm 4\n");
}

#[test]
fn invalid_labels_are_rejected_and_change_nothing() {
    let mut document = Document::new();
    let mut family = document.family(M);
    family.add([(A, "1")], 1.0, None).unwrap();
    let error = family
        .add([(LE, "1"), (A, "1"), (LE, "2")], 2.0, None)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "label name \"le\" occurs twice in one series"
    );
    let names: Vec<String> = (0..=MAX_LABELS).map(|n| format!("l{n}")).collect();
    let many = names.iter().map(|name| (LabelName::new(name).unwrap(), ""));
    let mut wide = Document::new();
    assert_eq!(
        wide.family(M).add(many.clone(), 1.0, None).unwrap_err(),
        LabelsError::TooMany
    );
    assert!(wide.family(M).add(many.skip(1), 1.0, None).is_ok());
    assert_eq!(encoded(&mut document), "m{a=\"1\"} 1\n");
}

#[test]
fn the_first_metadata_counts_and_families_without_series_are_omitted() {
    let body =
        "# HELP m one\n# HELP m two\n# TYPE m gauge\n# TYPE m counter\nm 1\n# HELP empty x\n";
    assert_eq!(reencoded(body), "# HELP m one\n# TYPE m gauge\nm 1\n");
}

#[test]
fn a_family_that_occurs_twice_is_merged() {
    assert_eq!(
        reencoded("b 1\na 1\nb{x=\"y\"} 2\n"),
        "a 1\nb 1\nb{x=\"y\"} 2\n"
    );
    let mut document = Document::parse(b"b 1\na 1\n");
    assert_eq!(encoded(&mut document), "a 1\nb 1\n");
    // The index is valid after sorting.
    document
        .family(MetricName::from_static("a"))
        .add([(A, "x")], 3.0, None)
        .unwrap();
    assert_eq!(encoded(&mut document), "a 1\na{a=\"x\"} 3\nb 1\n");
}

#[test]
fn errors_are_kept_up_to_a_limit_and_all_counted() {
    let document = Document::parse(b"a 1\nbad\n");
    let error = ParseError {
        line: 2,
        column: 4,
        reason: Reason::MissingValue,
    };
    assert_eq!(document.errors(), [error]);
    let body = "-\n".repeat(MAX_KEPT_ERRORS + 5);
    let document = Document::parse(body.as_bytes());
    assert_eq!(document.errors().len(), MAX_KEPT_ERRORS);
    assert_eq!(document.summary().unwrap().errors, MAX_KEPT_ERRORS + 5);
    assert_eq!(Document::new().summary(), None);
}
