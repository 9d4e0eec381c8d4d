//! Intended differences from the parsers of Prometheus.

/// A parser of Prometheus for the text format.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Go {
    /// `TextParser` of `github.com/prometheus/common/expfmt`.
    Expfmt,
    /// `PromParser` of `github.com/prometheus/prometheus/model/textparse`.
    Textparse,
}
use Go::{Expfmt, Textparse};

/// The reason of a difference, the parser it concerns, and bodies that show it, as Go quotes
/// them.
pub(crate) struct Difference {
    pub(crate) why: &'static str,
    pub(crate) from: &'static [Go],
    pub(crate) bodies: &'static [&'static str],
}

pub(crate) const DIFFERENCES: &[Difference] = &[
    Difference {
        why: "a blank must separate a bare name from its value, so that `a-b 1` is reported as a bad name",
        from: &[Expfmt, Textparse],
        bodies: &[r"a-1 2\n", r"a+1\n", r"a-1\n", r"a.5\n"],
    },
    Difference {
        why: "quoted names came with Prometheus 3; text format 0.0.4 does not have them",
        from: &[Expfmt, Textparse],
        bodies: &[
            r#"{\"a\"} 1\n"#,
            r#"{\"a.b\"} 1\n"#,
            r#"{\"a.b\",c=\"d\"} 1\n"#,
            r#"{ \"a.b\" } 1\n"#,
            r#"a{\"b.c\"=\"d\"} 1\n"#,
            r#"# HELP \"a\" x\n"#,
            r#"# HELP \"a.b\" x\n"#,
            r#"# TYPE \"a\" counter\n"#,
        ],
    },
    Difference {
        why: "quotes are taken for part of an unquoted name",
        from: &[Expfmt],
        bodies: &[r#"\"a\" 1\n"#, r#"a\"b\" 1\n"#],
    },
    Difference {
        why: "blanks before a name end up in the name",
        from: &[Textparse],
        bodies: &[r" a 1\n", r"\ta 1\n"],
    },
    Difference {
        why: "blanks at the end of a line do no harm",
        from: &[Expfmt],
        bodies: &[r"a 1 \n", r"a 1\t\n", r"a 1 2 \n"],
    },
    Difference {
        why: "labels without a comma between them are an accident of the lexer",
        from: &[Textparse],
        bodies: &[r#"a{b=\"c\" d=\"e\"} 1\n"#, r#"a{b=\"c\"d=\"e\"} 1\n"#],
    },
    Difference {
        why: "a label that occurs twice has no one value",
        from: &[Textparse],
        bodies: &[
            r#"a{b=\"c\",b=\"d\"} 1\n"#,
            r#"a{b=\"c\",c=\"d\",b=\"e\"} 1\n"#,
        ],
    },
    Difference {
        why: "the label `__name__` would rename the metric",
        from: &[Textparse],
        bodies: &[r#"a{__name__=\"b\"} 1\n"#],
    },
    Difference {
        why: "a newline ends the line, in a label value too",
        from: &[Textparse],
        bodies: &[r#"a{b=\"c\nd\"} 1\n"#],
    },
    Difference {
        why: "the format has three escapes",
        from: &[Textparse],
        bodies: &[
            r#"a{b=\"\\t\"} 1\n"#,
            r#"a{b=\"\\x\"} 1\n"#,
            r#"a{b=\"\\u0041\"} 1\n"#,
            r#"a{b=\"\\é\"} 1\n"#,
            r"# HELP a x\\y\n",
            r"# HELP a x\\\n",
        ],
    },
    Difference {
        why: "a timestamp is an int64, so it may have a sign; the kubelet has written negative ones",
        from: &[Textparse],
        bodies: &[
            r"a 1 -0\n",
            r"a 1 -2\n",
            r"a 1 +2\n",
            r"a 1 -62135596800000\n",
            r"a 1 -9223372036854775808\n",
        ],
    },
    Difference {
        why: "a keyword with nothing after it is a comment like any other",
        from: &[Textparse],
        bodies: &[r"# HELP \n", r"# TYPE \n"],
    },
    Difference {
        why: "a blank must follow the name in a HELP line",
        from: &[Textparse],
        bodies: &[r"# HELP a-b x\n", r"# HELP a\\ x\n", r"# HELP a{} x\n"],
    },
    Difference {
        why: "the format is UTF-8, comments too",
        from: &[Expfmt],
        bodies: &[r"# HELP a \xff\n"],
    },
    Difference {
        why: "the format is UTF-8, comments too",
        from: &[Expfmt, Textparse],
        bodies: &[r"# x \xff\n"],
    },
    Difference {
        why: "a TYPE line without a type, or with one that the format does not have, is bad",
        from: &[Expfmt],
        bodies: &[r"# TYPE a\n", r"# TYPE a \n", r"# TYPE a gaugehistogram\n"],
    },
    Difference {
        why: "types may be in capitals, and blanks around them do no harm",
        from: &[Textparse],
        bodies: &[
            r"# TYPE a Counter\n",
            r"# TYPE a GAUGE\n",
            r"# TYPE  a  counter\n",
        ],
    },
    Difference {
        why: "blanks at the end of a line do no harm",
        from: &[Expfmt, Textparse],
        bodies: &[r"# TYPE a counter \n"],
    },
    Difference {
        why: "repeated metadata is pushed as it comes: the consumer decides",
        from: &[Expfmt],
        bodies: &[
            r"# HELP a x\n# HELP a y\n",
            r"# TYPE a gauge\n# TYPE a gauge\n",
            r"a 1\n# TYPE a gauge\n",
        ],
    },
    Difference {
        why: "what histograms and summaries mean is not for a parser of lines",
        from: &[Expfmt],
        bodies: &[
            r#"# TYPE a summary\na{quantile=\"x\"} 1\n"#,
            r#"# TYPE a histogram\na_bucket{le=\"x\"} 1\n"#,
        ],
    },
    Difference {
        why: "what histograms and summaries mean is not for a parser of lines",
        from: &[Expfmt, Textparse],
        bodies: &[r#"# TYPE a histogram\na_bucket{le=\"1\"} -1\n"#],
    },
    Difference {
        why: "lines may end with CRLF",
        from: &[Expfmt, Textparse],
        bodies: &[
            r"\r\n",
            r"a 1\r\n",
            r"a 1 2\r\n",
            r"a 1\r\nb 2\r\n",
            r"# TYPE a gauge\r\n",
        ],
    },
    Difference {
        why: "a NUL is taken for the end of the body",
        from: &[Textparse],
        bodies: &[r"\x00\n"],
    },
    Difference {
        why: "the last line may lack its newline; the consumer is notified",
        from: &[Expfmt],
        bodies: &[
            "a 1",
            "a 12",
            "a 1 2",
            r#"a{b=\"c\"} 1"#,
            "# x",
            "# HELP a x",
            "# TYPE a gauge",
        ],
    },
];
