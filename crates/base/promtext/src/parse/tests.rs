use super::*;

fn errors(body: &[u8]) -> Vec<ParseError> {
    let mut errors = Vec::new();
    parse(body, |item| {
        if let Item::Error(error) = item {
            errors.push(error);
        }
    });
    errors
}

fn with_labels(count: usize) -> String {
    let labels: Vec<String> = (0..count).map(|n| format!("l{n}=\"{n}\"")).collect();
    format!("a{{{},}} 1", labels.join(","))
}

#[test]
fn every_reason_has_a_line_and_a_column() {
    let too_many = with_labels(MAX_LABELS + 1);
    let column_of_last = too_many.rfind(',').unwrap() + 1;
    let cases: [(&[u8], usize, Reason); 31] = [
        (b"a{b=\"\xff\"} 1", 6, Reason::InvalidUtf8),
        (b"# caf\xe9", 6, Reason::InvalidUtf8),
        (b" {b=\"c\"} 1", 2, Reason::MissingMetricName),
        (b"9a 1", 1, Reason::InvalidMetricName),
        (b"a-b 1", 2, Reason::InvalidMetricName),
        (b"# HELP a{} x", 9, Reason::InvalidMetricName),
        (b"# TYPE 9 gauge", 8, Reason::InvalidMetricName),
        (b"{\"a.b\"} 1", 2, Reason::QuotedName),
        (b"a{\"b.c\"=\"d\"} 1", 3, Reason::QuotedName),
        (b"# HELP \"a.b\" x", 8, Reason::QuotedName),
        (b"a{-=\"b\"} 1", 3, Reason::InvalidLabelName),
        (b"a{b=\"c\",,} 1", 9, Reason::InvalidLabelName),
        (b"a{__name__=\"b\"} 1", 3, Reason::ReservedLabelName),
        (b"a{b=\"c\",b=\"d\"} 1", 9, Reason::DuplicateLabelName),
        (too_many.as_bytes(), column_of_last, Reason::TooManyLabels),
        (b"a{b:c=\"d\"} 1", 4, Reason::MissingEquals),
        (b"a{b=c} 1", 5, Reason::MissingQuote),
        (b"a{b=\"c} 1", 5, Reason::UnterminatedLabelValue),
        (b"a{b=\"c\\d\"} 1", 7, Reason::InvalidEscape),
        (b"# HELP a \\\\ \\x", 13, Reason::InvalidEscape),
        (b"a{b=\"c\" d=\"e\"} 1", 9, Reason::MissingComma),
        (b"a{b=\"c\"", 8, Reason::UnterminatedLabels),
        (b"a{", 3, Reason::UnterminatedLabels),
        (b"a", 2, Reason::MissingValue),
        (b"a{b=\"c\"} ", 10, Reason::MissingValue),
        (b"a 1x", 3, Reason::InvalidValue),
        (b"a 1e309", 3, Reason::ValueOutOfRange),
        (b"a 1 2.5", 5, Reason::InvalidTimestamp),
        (b"a 1 9223372036854775808", 5, Reason::InvalidTimestamp),
        (b"a 1 2 3", 7, Reason::TrailingText),
        (b"# TYPE a info ", 10, Reason::UnknownType),
    ];
    for (bad, column, reason) in cases {
        for end in ["\n", "\r\n", ""] {
            let body = [b"# a comment\n\na 1\n".as_slice(), bad, end.as_bytes()].concat();
            let expected = ParseError {
                line: 4,
                column,
                reason,
            };
            assert_eq!(
                errors(&body),
                [expected],
                "{}",
                String::from_utf8_lossy(&body)
            );
        }
    }
    for reason in Reason::ALL {
        assert!(
            cases.iter().any(|(_, _, seen)| *seen == reason),
            "{reason:?} has no case"
        );
    }
}

#[test]
fn messages_have_line_column_and_reason() {
    let messages: Vec<String> = errors(b"a 1\n{\"a.b\"} 1\n")
        .iter()
        .map(ToString::to_string)
        .collect();
    let expected = "line 2, column 2: quoted UTF-8 names are not part of text format 0.0.4";
    assert_eq!(messages, [expected]);
    for reason in Reason::ALL {
        let message = reason.to_string();
        assert!(
            !message.ends_with('.') && !message.starts_with(char::is_uppercase),
            "{message}"
        );
    }
}

#[test]
fn the_number_of_labels_is_limited() {
    let body = with_labels(MAX_LABELS);
    let mut counts = Vec::new();
    parse(body.as_bytes(), |item| {
        if let Item::Sample(sample) = item {
            counts.push((
                sample.labels.len(),
                sample.label("l63").map(|label| label.raw),
            ));
        }
    });
    assert_eq!(counts, [(MAX_LABELS, Some("63"))]);
}

/// Names at the same position as on the previous line are not validated again; others are.
#[test]
fn duplicates_are_found_whatever_the_previous_lines_had() {
    let body = br#"a{b="1",c="2"} 1
a{b="1",c="2",b="3"} 1
a{b="1",c="2"} 1
a{b="1",b="2"} 1
a{b="1",c="2"} 1
a{c="1",b="2",c="3"} 1
a{b="1",c="2"} 1
a{c="1",-
a{c="1",c="2"} 1
a{b="1",c="2"} x
a{c="1" ,b = "2", c="3"} 1
"#;
    let found: Vec<(usize, Reason)> = errors(body).iter().map(|e| (e.line, e.reason)).collect();
    assert_eq!(
        found,
        [
            (2, Reason::DuplicateLabelName),
            (4, Reason::DuplicateLabelName),
            (6, Reason::DuplicateLabelName),
            (8, Reason::InvalidLabelName),
            (9, Reason::DuplicateLabelName),
            (10, Reason::InvalidValue),
            (11, Reason::DuplicateLabelName),
        ]
    );
}

#[test]
fn labels_do_not_carry_over_to_the_next_line() {
    let body = b"a{b=\"1\",c=\"2 !\"} 1\na{b=\"3\"} 1\na{b=\"4\",cc=\"\\n\"} 1\na 1\na{c=\"5\",b=\"6\",} 1\n";
    let mut seen = Vec::new();
    parse(body, |item| {
        let Item::Sample(sample) = item else {
            panic!("{item:?}")
        };
        let labels = sample.labels.iter();
        let labels = labels.map(|label| format!("{}={}", label.name.as_str(), label.raw));
        seen.push(labels.collect::<Vec<_>>().join(" "));
    });
    assert_eq!(seen, ["b=1 c=2 !", "b=3", "b=4 cc=\\n", "", "c=5 b=6"]);
}

#[test]
fn invalid_utf8_affects_only_its_line() {
    let body = b"a 1\n\xffb 2\nc 3\n\xc3\x28\n\xf0\x9f\nd{e=\"\xc3\xbc\"} 4\n\xff";
    let mut lines = Vec::new();
    let summary = parse(body, |item| {
        if let Item::Sample(sample) = item {
            lines.push((sample.line, sample.name.as_str()));
        }
    });
    assert_eq!(lines, [(1, "a"), (3, "c"), (6, "d")]);
    assert_eq!(
        errors(body)
            .iter()
            .map(|error| error.line)
            .collect::<Vec<_>>(),
        [2, 4, 5, 7]
    );
    let bytes = body.len();
    let expected = Summary {
        bytes,
        lines: 7,
        samples: 3,
        skipped: 0,
        errors: 4,
        terminated: false,
    };
    assert_eq!(summary, expected);
}

#[test]
fn a_name_with_the_previous_one_as_prefix_is_another_name() {
    let mut names = Vec::new();
    parse(
        b"a 1\nab 2\na{} 3\na\t4\na_total 5\n a 6\na{x=\"\"}7\n",
        |item| {
            if let Item::Sample(sample) = item {
                names.push((sample.name.as_str(), sample.value.to_string()));
            }
        },
    );
    let names: Vec<_> = names
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let expected = [
        ("a", "1"),
        ("ab", "2"),
        ("a", "3"),
        ("a", "4"),
        ("a_total", "5"),
        ("a", "6"),
        ("a", "7"),
    ];
    assert_eq!(names, expected);
}

#[test]
fn wants_is_called_once_for_each_run_of_a_name() {
    #[derive(Default)]
    struct OnlyB<'a> {
        asked: Vec<&'a str>,
        lines: Vec<usize>,
        types: usize,
    }
    impl<'a> Visitor<'a> for OnlyB<'a> {
        fn wants(&mut self, name: &'a str) -> bool {
            self.asked.push(name);
            name == "b"
        }
        fn item(&mut self, item: Item<'a, '_>) {
            match item {
                Item::Sample(sample) => self.lines.push(sample.line),
                Item::Type(_) => self.types += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    let mut visitor = OnlyB::default();
    // The third line is invalid, but not wanted.
    let body = b"# TYPE a gauge\na 1\na{ 2\nb 3\nb{x=\"y\"} 4\na 5\nb 6";
    let summary = parse_with(body, &mut visitor);
    assert_eq!(visitor.asked, ["a", "b", "a", "b"]);
    assert_eq!(visitor.lines, [4, 5, 7]);
    assert_eq!(visitor.types, 1);
    assert_eq!(
        (summary.samples, summary.skipped, summary.errors),
        (3, 3, 0)
    );
}

#[test]
fn comments_are_pushed_and_metadata_is_read() {
    let body =
        b"#\n# a comment \r\n#HELP a  two\\nlines \r\n# TYPE a GAUGE \n# HELP\n# TYPE \n# EOF";
    let mut seen = Vec::new();
    parse(body, |item| {
        seen.push(match item {
            Item::Help(help) => format!("{} help {:?}", help.line, help.text()),
            Item::Type(kind) => format!("{} type {}", kind.line, kind.kind),
            Item::Comment(Comment { line, text }) => format!("{line} comment {text:?}"),
            other => panic!("{other:?}"),
        });
    });
    let expected = [
        "1 comment \"\"",
        "2 comment \" a comment \"",
        "3 help \" two\\nlines \"",
        "4 type gauge",
        "5 comment \" HELP\"",
        "6 comment \" TYPE \"",
        "7 comment \" EOF\"",
    ];
    assert_eq!(seen, expected);
}

#[test]
fn an_empty_body_is_complete() {
    let summary = parse(b"", |item| panic!("{item:?}"));
    assert_eq!((summary.lines, summary.terminated), (0, true));
    assert!(!parse(b" ", |item| panic!("{item:?}")).terminated);
}
