//! The public API of the parser, and its loop over lines.

mod cursor;
mod number;

use std::borrow::Cow;

use memchr::{memchr, memrchr};

use crate::error::{ParseError, Reason};
use crate::escape::unescape;
use crate::name::{LabelName, MetricName, MetricType};
use cursor::{Cursor, Remark};

/// Maximum number of labels of a series. A line with more is an error.
///
/// The labels of one line are held in an array of this size, which is the only memory of the
/// parser. Prometheus has no limit; series of a kubelet have at most about ten.
pub const MAX_LABELS: usize = 64;

/// An item of a body, in the order of the body.
///
/// `'a` is the body, `'p` the parser's array of labels, which the next line overwrites.
#[derive(Debug, Clone, Copy)]
pub enum Item<'a, 'p> {
    /// A series with its value.
    Sample(Sample<'a, 'p>),
    /// A `# HELP` line.
    Help(Help<'a>),
    /// A `# TYPE` line.
    Type(Type<'a>),
    /// Any other comment.
    Comment(Comment<'a>),
    /// An invalid line.
    Error(ParseError),
}

/// A series with its value.
#[derive(Debug, Clone, Copy)]
pub struct Sample<'a, 'p> {
    /// The number of the line in the body, the first being 1.
    pub line: usize,
    /// Whether the line ended with a newline.
    ///
    /// False only for the last line of a body that may be truncated: a value of `12` may be the
    /// beginning of `123456`.
    pub terminated: bool,
    /// The name before the labels.
    pub name: MetricName<'a>,
    /// The labels in the order of the line; no name occurs twice.
    pub labels: &'p [Label<'a>],
    pub value: f64,
    /// The timestamp of the value, in milliseconds since 1970.
    pub timestamp_ms: Option<i64>,
}

/// One label of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label<'a> {
    pub name: LabelName<'a>,
    /// The value as written between the quotes, escapes not resolved.
    pub raw: &'a str,
    /// Whether `raw` contains escapes. If not, it is the value.
    pub escaped: bool,
}

/// A `# HELP` line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Help<'a> {
    /// The number of the line in the body, the first being 1.
    pub line: usize,
    pub name: MetricName<'a>,
    /// The text as written, escapes not resolved.
    ///
    /// One blank after the name is not part of it, nor are carriage returns at the end.
    pub raw: &'a str,
}

/// A `# TYPE` line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Type<'a> {
    /// The number of the line in the body, the first being 1.
    pub line: usize,
    pub name: MetricName<'a>,
    pub kind: MetricType,
}

/// A comment that is neither `# HELP` nor `# TYPE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comment<'a> {
    /// The number of the line in the body, the first being 1.
    pub line: usize,
    /// The text after the `#`.
    pub text: &'a str,
}

/// Statistics of a parsed body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// The length of the body.
    pub bytes: usize,
    /// All lines, including blank ones and comments.
    pub lines: usize,
    /// Number of samples.
    pub samples: usize,
    /// Sample lines that the visitor did not want. Only their name was checked.
    pub skipped: usize,
    /// Number of invalid lines.
    pub errors: usize,
    /// Whether the body is empty or ended with a newline. If not, it may be truncated.
    pub terminated: bool,
}

/// Receives the items of [`parse_with`].
pub trait Visitor<'a> {
    /// Returns whether to parse samples of this name.
    ///
    /// It is called once for each run of lines with the same name. Unwanted lines are skipped at
    /// the speed of a search for newlines.
    fn wants(&mut self, name: &'a str) -> bool {
        let _ = name;
        true
    }

    /// Handles one item.
    fn item(&mut self, item: Item<'a, '_>);
}

/// Passes all items of `body` to `push`.
pub fn parse<'a>(body: &'a [u8], push: impl FnMut(Item<'a, '_>)) -> Summary {
    parse_with(body, &mut Everything(push))
}

/// Passes the items of `body` to `visitor`.
#[expect(
    clippy::missing_panics_doc,
    reason = "it cannot panic: the text was validated"
)]
pub fn parse_with<'a, V: Visitor<'a>>(body: &'a [u8], visitor: &mut V) -> Summary {
    let mut parser = LineParser {
        visitor,
        summary: Summary {
            bytes: body.len(),
            lines: 0,
            samples: 0,
            skipped: 0,
            errors: 0,
            terminated: body.last().is_none_or(|last| *last == b'\n'),
        },
        run: None,
        labels: [Label {
            name: LabelName::trusted("_"),
            raw: "",
            escaped: false,
        }; MAX_LABELS],
        known_labels: 0,
    };
    let mut rest = body;
    loop {
        // Nearly always one pass over the whole body. A line that is not UTF-8 starts another after
        // it, so that no byte is validated more than twice.
        let invalid = match str::from_utf8(rest) {
            Ok(text) => {
                parser.text(text);
                break;
            }
            Err(error) => error.valid_up_to(),
        };
        let (valid, after) = rest.split_at(invalid);
        let line_start = memrchr(b'\n', valid).map_or(0, |newline| newline + 1);
        let (lines, line) = valid.split_at(line_start);
        parser.text(str::from_utf8(lines).expect("comes before the first invalid byte"));
        parser.invalid_line(line.len() + 1);
        rest = after_line(after);
    }
    parser.summary
}

impl<'a> Sample<'a, '_> {
    /// Returns the label of this name.
    #[inline]
    pub fn label(&self, name: &str) -> Option<&Label<'a>> {
        self.labels.iter().find(|label| label.name.as_str() == name)
    }

    /// Returns the labels of these names, in one pass over the labels.
    ///
    /// ```
    /// use kubevitals_promtext::{Item, parse};
    ///
    /// parse(b"up{pod=\"a\",namespace=\"b\"} 1\n", |item| {
    ///     let Item::Sample(sample) = item else { return };
    ///     let [Some(namespace), Some(pod), None] = sample.pick(["namespace", "pod", "container"])
    ///     else {
    ///         panic!("a label is missing")
    ///     };
    ///     assert_eq!((namespace.value().as_ref(), pod.raw), ("b", "a"));
    /// });
    /// ```
    #[inline]
    pub fn pick<const N: usize>(&self, names: [&str; N]) -> [Option<&Label<'a>>; N] {
        let mut found = [None; N];
        // Usually the series has just these, in this order.
        let in_order = |(label, name): (&Label<'a>, &str)| label.name.as_str() == name;
        if self.labels.len() == N && self.labels.iter().zip(names).all(in_order) {
            for (slot, label) in found.iter_mut().zip(self.labels) {
                *slot = Some(label);
            }
            return found;
        }
        for label in self.labels {
            for (slot, name) in found.iter_mut().zip(names) {
                if label.name.as_str() == name {
                    *slot = Some(label);
                    break;
                }
            }
        }
        found
    }
}

impl<'a> Label<'a> {
    /// Returns the value with escapes resolved; borrows if there are none.
    #[inline]
    pub fn value(&self) -> Cow<'a, str> {
        if self.escaped {
            unescape(self.raw)
        } else {
            Cow::Borrowed(self.raw)
        }
    }
}

impl<'a> Help<'a> {
    /// Returns the text with escapes resolved; borrows if there are none.
    pub fn text(&self) -> Cow<'a, str> {
        unescape(self.raw)
    }
}

/// The visitor behind [`parse`].
struct Everything<F>(F);

impl<'a, F: FnMut(Item<'a, '_>)> Visitor<'a> for Everything<F> {
    #[inline]
    fn item(&mut self, item: Item<'a, '_>) {
        (self.0)(item);
    }
}

struct LineParser<'a, 'v, V> {
    visitor: &'v mut V,
    summary: Summary,
    /// The name of the last sample line, and whether it was wanted.
    ///
    /// Series of one family follow each other, so the next line nearly always has the same name:
    /// comparing it is quicker than checking it byte by byte.
    run: Option<(&'a str, bool)>,
    labels: [Label<'a>; MAX_LABELS],
    /// Number of labels of the last line. Their names are valid and differ.
    known_labels: usize,
}

impl<'a, V: Visitor<'a>> LineParser<'a, '_, V> {
    /// Parses whole lines of valid text.
    fn text(&mut self, text: &'a str) {
        let mut cursor = Cursor::new(text);
        while !cursor.is_finished() {
            self.summary.lines += 1;
            cursor.start_line();
            if let Err(reason) = self.line(&mut cursor) {
                self.error(cursor.column(), reason);
            }
            cursor.finish_line();
        }
    }

    #[inline]
    fn line(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Reason> {
        cursor.skip_blanks();
        if let Some((name, wanted)) = self.run
            && cursor.take_same_name(name)
        {
            return self.series(cursor, name, wanted);
        }
        match cursor.peek() {
            Some(b'#') => self.comment(cursor),
            Some(b'{') => Err(cursor.nameless_series()),
            _ if cursor.at_line_end() => Ok(()),
            _ => {
                let name = cursor.metric_name()?;
                let wanted = self.visitor.wants(name);
                self.run = Some((name, wanted));
                self.series(cursor, name, wanted)
            }
        }
    }

    #[inline]
    fn series(
        &mut self,
        cursor: &mut Cursor<'a>,
        name: &'a str,
        wanted: bool,
    ) -> Result<(), Reason> {
        if !wanted {
            self.summary.skipped += 1;
            return Ok(());
        }
        // The labels of an invalid line may be incomplete.
        let known = std::mem::take(&mut self.known_labels);
        let count = cursor.labels(&mut self.labels, known)?;
        self.known_labels = count;
        let value = cursor.value()?;
        let timestamp_ms = cursor.timestamp()?;
        self.summary.samples += 1;
        self.visitor.item(Item::Sample(Sample {
            line: self.summary.lines,
            terminated: self.summary.terminated || cursor.is_terminated(),
            name: MetricName::trusted(name),
            labels: self.labels.get(..count).unwrap_or_default(),
            value,
            timestamp_ms,
        }));
        Ok(())
    }

    #[cold]
    fn comment(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Reason> {
        let line = self.summary.lines;
        let item = match cursor.comment()? {
            Remark::Help(name, raw) => Item::Help(Help {
                line,
                name: MetricName::trusted(name),
                raw,
            }),
            Remark::Type(name, kind) => Item::Type(Type {
                line,
                name: MetricName::trusted(name),
                kind,
            }),
            Remark::Other(text) => Item::Comment(Comment { line, text }),
        };
        self.visitor.item(item);
        Ok(())
    }

    fn invalid_line(&mut self, column: usize) {
        self.summary.lines += 1;
        self.error(column, Reason::InvalidUtf8);
    }

    #[cold]
    fn error(&mut self, column: usize, reason: Reason) {
        self.summary.errors += 1;
        let line = self.summary.lines;
        self.visitor.item(Item::Error(ParseError {
            line,
            column,
            reason,
        }));
    }
}

/// Returns the bytes after the first newline.
fn after_line(bytes: &[u8]) -> &[u8] {
    memchr(b'\n', bytes)
        .and_then(|newline| bytes.get(newline + 1..))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
