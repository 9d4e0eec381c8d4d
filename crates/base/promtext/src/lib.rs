//! The Prometheus text format, version 0.0.4: a borrowing parser and a byte-exact encoder.
//!
//! **Reading.** [`parse()`] and [`parse_with`] read a body once and push items: samples, `HELP` and
//! `TYPE` lines, and an error for each invalid line, after which they continue with the next one.
//! All items borrow from the body. Nothing is allocated, nothing recurses, and no input makes them
//! panic, so that untrusted bodies can be parsed.
//!
//! **Writing.** [`Encoder`] appends families and samples to a `Vec<u8>` in the given order, in the
//! same bytes as Go's `client_golang` and `expfmt` (and so the kubelet). [`Document`] accepts
//! families, series and labels in any order, sorts them as `client_golang` does and writes them
//! with [`Encoder`]; [`Document::parse`] creates one from a body.
//!
//! ```
//! use kubevitals_promtext::{Item, parse};
//!
//! let body = b"# TYPE up gauge\nup{pod=\"a\"} 1 1794773483261\nup{pod=} 1\n";
//! let mut seen = Vec::new();
//! let summary = parse(body, |item| match item {
//!     Item::Sample(sample) => seen.push(format!("{} = {}", sample.name, sample.value)),
//!     Item::Error(error) => seen.push(error.to_string()),
//!     _ => {}
//! });
//! assert_eq!(
//!     seen,
//!     ["up = 1", "line 3, column 8: label value does not start with a double quote"]
//! );
//! assert_eq!((summary.samples, summary.errors), (1, 1));
//! ```
//!
//! # Accepted input
//!
//! The format has no grammar of its own: it is what Prometheus' two parsers accept, which differ.
//! `expfmt` below is `github.com/prometheus/common/expfmt`'s `TextParser`, `textparse` is the
//! Prometheus server's `PromParser`. Both stop at the first invalid line.
//!
//! | input | here | expfmt | textparse |
//! |---|---|---|---|
//! | invalid line | is skipped | fails the body | fails the rest of the body |
//! | CRLF line ends | yes | no | no |
//! | last line without newline | yes, marked by [`Sample::terminated`] | no | yes |
//! | negative timestamp | yes | yes | no |
//! | blanks at the end of a line | yes | no | yes |
//! | no blank between bare name and value (`a+1`) | no | yes | yes |
//! | no comma between labels | no | no | yes |
//! | newline inside a label value | no | no | yes |
//! | unknown escape (`\x`) in a label value | no | no | kept as it is |
//! | duplicate label name in one series | no | no | yes |
//! | label `__name__` | no | no | yes |
//! | quoted UTF-8 names (`{"a.b"}`) | no: not in 0.0.4 | yes | yes |
//! | `TYPE` in capitals | yes | yes | no |
//! | second `HELP` or `TYPE`, or one after samples | pushed | no | yes |
//! | bytes that are not UTF-8, anywhere in a line | no | in label values | in label values and `HELP` |
//!
//! Numbers are those that both accept: Go's `strconv.ParseFloat` without hexadecimal and without
//! underscores. `NaN`, `Inf` and `Infinity` may be written in any case; `Inf` and `Infinity` may
//! carry a sign, `NaN` may not; a number too large for an `f64` is an error, not infinity.

mod class;
mod document;
mod encode;
mod error;
mod escape;
mod float;
mod name;
mod parse;
mod swar;

pub use document::{Document, Family, FamilyMut, MAX_KEPT_ERRORS, Order, Series};
pub use encode::{Encoder, FamilyEncoder, Suffix};
pub use error::{LabelsError, NameError, ParseError, Reason};
pub use escape::{unescape, write_escaped_help, write_escaped_label_value};
pub use float::write_go_float;
pub use name::{LabelName, MetricName, MetricType};
pub use parse::{
    Comment, Help, Item, Label, MAX_LABELS, Sample, Summary, Type, Visitor, parse, parse_with,
};
