//! The grammar of one line.
//!
//! The cursor runs over the whole text, not over one line, so that numbers and label values can
//! be read eight bytes at a time up to the end of a line. It passes a newline only in
//! [`Cursor::finish_line`]: a newline belongs to no token, so every step stops there.

use memchr::memchr;

use super::number::{self, digits};
use super::{Label, MAX_LABELS};
use crate::error::Reason;
use crate::name::{LabelName, MetricType, is_reserved};
use crate::{class, swar};

/// An offset in a text, and the start of its line.
pub(super) struct Cursor<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    line_start: usize,
}

/// A line that starts with `#`.
pub(super) enum Remark<'a> {
    /// The family and its text, escapes not resolved.
    Help(&'a str, &'a str),
    /// The family and its type.
    Type(&'a str, MetricType),
    /// The text after the `#`.
    Other(&'a str),
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            bytes: text.as_bytes(),
            at: 0,
            line_start: 0,
        }
    }

    #[inline]
    pub(super) fn is_finished(&self) -> bool {
        self.at >= self.bytes.len()
    }

    #[inline]
    pub(super) fn start_line(&mut self) {
        self.line_start = self.at;
    }

    /// Moves to the next line.
    #[inline]
    pub(super) fn finish_line(&mut self) {
        if !self.at_newline() {
            self.at = self.newline();
        }
        self.at += 1;
    }

    /// Returns the offset in the line, the first byte being 1.
    pub(super) fn column(&self) -> usize {
        self.at - self.line_start + 1
    }

    #[inline]
    pub(super) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    #[inline]
    fn at_newline(&self) -> bool {
        self.peek() == Some(b'\n')
    }

    /// Returns whether the line ends with a newline. The cursor must be at its end.
    #[inline]
    pub(super) fn is_terminated(&self) -> bool {
        self.at_newline() || self.bytes.get(self.at + 1) == Some(&b'\n')
    }

    /// Returns whether the line ends here: with LF, CRLF, or the end of the text.
    #[inline]
    pub(super) fn at_line_end(&self) -> bool {
        match self.peek() {
            None | Some(b'\n') => true,
            Some(b'\r') => matches!(self.bytes.get(self.at + 1), None | Some(b'\n')),
            Some(_) => false,
        }
    }

    #[inline]
    pub(super) fn skip_blanks(&mut self) {
        self.skip(class::BLANK);
    }

    /// Consumes the metric name `name` if it is next, followed by labels or a blank.
    #[inline]
    pub(super) fn take_same_name(&mut self, name: &str) -> bool {
        let end = self.at + name.len();
        let same = self.bytes.get(self.at..end) == Some(name.as_bytes())
            && self
                .bytes
                .get(end)
                .is_some_and(|byte| *byte == b'{' || class::is(*byte, class::BLANK));
        if same {
            self.at = end;
        }
        same
    }

    /// Consumes a metric name, which labels, a blank or the end of the line must follow.
    pub(super) fn metric_name(&mut self) -> Result<&'a str, Reason> {
        let name = match self.peek() {
            Some(b'"') => return Err(Reason::QuotedName),
            Some(first) if class::is(first, class::METRIC_START) => self.word(class::METRIC),
            _ => return Err(Reason::InvalidMetricName),
        };
        match self.peek() {
            Some(b'{') => Ok(name),
            Some(next) if class::is(next, class::BLANK) => Ok(name),
            _ if self.at_line_end() => Ok(name),
            _ => Err(Reason::InvalidMetricName),
        }
    }

    /// Returns the reason why a line that starts with `{` is invalid.
    #[cold]
    pub(super) fn nameless_series(&mut self) -> Reason {
        let brace = self.at;
        self.at += 1;
        self.skip_blanks();
        if self.peek() == Some(b'"') {
            Reason::QuotedName
        } else {
            self.at = brace;
            Reason::MissingMetricName
        }
    }

    /// Consumes the labels, if there are any, and returns their number.
    ///
    /// `labels` holds those of an earlier line, of which the first `known` have valid names, no two
    /// the same. Series of one family have the same names in the same order: comparing them is
    /// faster than validating them again.
    #[inline]
    pub(super) fn labels(
        &mut self,
        labels: &mut [Label<'a>; MAX_LABELS],
        mut known: usize,
    ) -> Result<usize, Reason> {
        if self.peek() != Some(b'{') {
            self.skip_blanks();
            if self.peek() != Some(b'{') {
                return Ok(0);
            }
        }
        self.at += 1;
        let mut count = 0;
        let mut seen = SeenNames::default();
        loop {
            let same = labels.get(count).filter(|_| count < known);
            let name = match same.map(|label| label.name) {
                Some(name) if self.take_same_label(name.as_str()) => name,
                _ => {
                    if known > 0 {
                        // From here on names are validated one by one.
                        known = 0;
                        seen.add(labels, count);
                    }
                    if !self.next_is(class::LABEL_START) {
                        self.skip_blanks();
                        if self.peek() == Some(b'}') {
                            break;
                        }
                    }
                    let name = self.label_name()?;
                    if seen.maybe(name) && seen_before(labels, count, name) {
                        return Err(self.back(name.len(), Reason::DuplicateLabelName));
                    }
                    self.take(b'=', Reason::MissingEquals)?;
                    self.take(b'"', Reason::MissingQuote)?;
                    LabelName::trusted(name)
                }
            };
            let (raw, escaped) = self.label_value()?;
            *labels.get_mut(count).ok_or(Reason::TooManyLabels)? = Label { name, raw, escaped };
            count += 1;
            if !matches!(self.peek(), Some(b',' | b'}')) {
                self.skip_blanks();
            }
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ if self.at_line_end() => return Err(Reason::UnterminatedLabels),
                _ => return Err(Reason::MissingComma),
            }
        }
        self.at += 1;
        Ok(count)
    }

    /// Consumes the label name `name` if it is next, with the equals sign and the quote that must
    /// follow.
    #[inline]
    fn take_same_label(&mut self, name: &str) -> bool {
        let end = self.at + name.len();
        let same = self.bytes.get(self.at..end) == Some(name.as_bytes())
            && self.bytes.get(end..end + 2) == Some(b"=\"");
        if same {
            self.at = end + 2;
        }
        same
    }

    /// Consumes a label name.
    #[inline]
    fn label_name(&mut self) -> Result<&'a str, Reason> {
        let name = match self.peek() {
            Some(first) if class::is(first, class::LABEL_START) => self.word(class::LABEL),
            Some(b'"') => return Err(Reason::QuotedName),
            _ if self.at_line_end() => return Err(Reason::UnterminatedLabels),
            _ => return Err(Reason::InvalidLabelName),
        };
        if is_reserved(name.as_bytes()) {
            return Err(self.back(name.len(), Reason::ReservedLabelName));
        }
        Ok(name)
    }

    /// Consumes the value.
    #[inline]
    pub(super) fn value(&mut self) -> Result<f64, Reason> {
        self.skip_blanks();
        if let Some((value, end)) = number::plain_float(self.bytes, self.at)
            && self.ends_token(end)
        {
            self.at = end;
            return Ok(value);
        }
        self.unusual_value()
    }

    /// Consumes the timestamp, if there is one, and blanks at the end of the line.
    #[inline]
    pub(super) fn timestamp(&mut self) -> Result<Option<i64>, Reason> {
        self.skip_blanks();
        if self.at_line_end() {
            return Ok(None);
        }
        let timestamp = match digits(self.bytes, self.at, 0, 0) {
            // Any eighteen digits fit.
            Some(read) if read.count > 0 && read.count <= 18 && self.ends_token(read.end) => {
                self.at = read.end;
                i64::try_from(read.number).map_err(|_| Reason::InvalidTimestamp)?
            }
            _ => {
                let token = self.token();
                token
                    .parse()
                    .map_err(|_| self.back(token.len(), Reason::InvalidTimestamp))?
            }
        };
        self.skip_blanks();
        if self.at_line_end() {
            Ok(Some(timestamp))
        } else {
            Err(Reason::TrailingText)
        }
    }

    /// Consumes a comment.
    pub(super) fn comment(&mut self) -> Result<Remark<'a>, Reason> {
        self.at += 1;
        let start = self.at;
        self.skip_blanks();
        let keyword = self.token();
        self.skip_blanks();
        // `# HELP` and `# TYPE` alone are ordinary comments.
        if !matches!(keyword, "HELP" | "TYPE") || self.at_line_end() {
            self.at = start;
            return Ok(Remark::Other(self.rest_of_line()));
        }
        let name = match self.metric_name() {
            Ok(_) if self.peek() == Some(b'{') => return Err(Reason::InvalidMetricName),
            name => name?,
        };
        if keyword == "TYPE" {
            self.skip_blanks();
            let at = self.at;
            let word = self.rest_of_line().trim_end_matches([' ', '\t']);
            return MetricType::from_word(word)
                .map(|kind| Remark::Type(name, kind))
                .ok_or_else(|| self.back(self.at - at, Reason::UnknownType));
        }
        if !self.at_line_end() {
            // One blank is the separator; more belong to the text, which the encoder writes
            // unchanged.
            self.at += 1;
        }
        let text_start = self.at;
        // A carriage return at the end of a line could not be read back.
        let raw = self.rest_of_line().trim_end_matches('\r');
        match invalid_escape(raw) {
            None => Ok(Remark::Help(name, raw)),
            Some(offset) => {
                self.at = text_start + offset;
                Err(Reason::InvalidEscape)
            }
        }
    }

    /// Consumes a label value and its closing quote. Returns whether it contains escapes.
    #[inline]
    fn label_value(&mut self) -> Result<(&'a str, bool), Reason> {
        let start = self.at;
        let mut escaped = false;
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            for chunk in rest.as_chunks::<8>().0 {
                let chunk = u64::from_le_bytes(*chunk);
                // Names contain no byte up to the quote, so that newline and quote are found in one
                // step.
                let marks = swar::mark_below(chunk, b'"' + 1) | swar::mark(chunk, b'\\');
                self.at += swar::first_marked(marks);
                if marks != 0 {
                    break;
                }
            }
            match self.peek() {
                Some(b'"') => {
                    let raw = self.slice(start, self.at);
                    self.at += 1;
                    return Ok((raw, escaped));
                }
                Some(b'\\') => {
                    if !matches!(self.bytes.get(self.at + 1), Some(b'\\' | b'"' | b'n')) {
                        return Err(Reason::InvalidEscape);
                    }
                    escaped = true;
                    self.at += 2;
                }
                None | Some(b'\n') => {
                    // The column of the opening quote is more helpful than the end of the line.
                    self.at = start - 1;
                    return Err(Reason::UnterminatedLabelValue);
                }
                // A blank or a control character, or the last eight bytes of the text.
                Some(_) => self.at += 1,
            }
        }
    }

    /// Consumes a value that is not plain digits: rare, or invalid.
    #[cold]
    fn unusual_value(&mut self) -> Result<f64, Reason> {
        if self.at_line_end() {
            return Err(Reason::MissingValue);
        }
        let token = self.token();
        number::any_float(token).map_err(|reason| self.back(token.len(), reason))
    }

    /// Takes bytes up to a blank or the end of the line.
    fn token(&mut self) -> &'a str {
        let start = self.at;
        while !self.at_line_end() && !self.next_is(class::BLANK) {
            self.at += 1;
        }
        self.slice(start, self.at)
    }

    /// Takes bytes up to the end of the line.
    fn rest_of_line(&mut self) -> &'a str {
        let rest = self.slice(self.at, self.newline());
        let rest = rest.strip_suffix('\r').unwrap_or(rest);
        self.at += rest.len();
        rest
    }

    /// Takes one byte and all that follow of a class.
    #[inline]
    fn word(&mut self, mask: u8) -> &'a str {
        let start = self.at;
        self.at += 1;
        self.skip(mask);
        self.slice(start, self.at)
    }

    #[inline]
    fn skip(&mut self, mask: u8) {
        while self.next_is(mask) {
            self.at += 1;
        }
    }

    #[inline]
    fn next_is(&self, mask: u8) -> bool {
        self.peek().is_some_and(|byte| class::is(byte, mask))
    }

    /// Consumes `byte` and blanks before it.
    #[inline]
    fn take(&mut self, byte: u8, otherwise: Reason) -> Result<(), Reason> {
        if self.peek() != Some(byte) {
            self.skip_blanks();
            if self.peek() != Some(byte) {
                return Err(otherwise);
            }
        }
        self.at += 1;
        Ok(())
    }

    /// Moves back to the start of the invalid token, for the column of the error.
    #[cold]
    fn back(&mut self, length: usize, reason: Reason) -> Reason {
        self.at -= length;
        reason
    }

    /// Returns whether a token ends before `at`: at a blank or the end of the line.
    #[inline]
    fn ends_token(&self, at: usize) -> bool {
        match self.bytes.get(at) {
            None | Some(b'\n' | b' ' | b'\t') => true,
            Some(b'\r') => matches!(self.bytes.get(at + 1), None | Some(b'\n')),
            Some(_) => false,
        }
    }

    /// Returns the offset of the next newline, or the end of the text.
    #[inline]
    fn newline(&self) -> usize {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        memchr(b'\n', rest).map_or(self.bytes.len(), |offset| self.at + offset)
    }

    #[inline]
    fn slice(&self, start: usize, end: usize) -> &'a str {
        self.text
            .get(start..end)
            .expect("tokens start and end next to ASCII bytes")
    }
}

/// A filter over the label names of one line, so that most lines never compare two names.
#[derive(Default)]
struct SeenNames(u64);

impl SeenNames {
    /// Adds names that differ.
    #[cold]
    fn add(&mut self, labels: &[Label<'_>; MAX_LABELS], count: usize) {
        for label in labels.iter().take(count) {
            self.maybe(label.name.as_str());
        }
    }

    /// Adds a name. Returns false if it was certainly not present.
    #[inline]
    fn maybe(&mut self, name: &str) -> bool {
        let first = name.as_bytes().first().copied().unwrap_or_default();
        let last = name.as_bytes().last().copied().unwrap_or_default();
        let bit = 1 << ((usize::from(first) * 7 + usize::from(last) * 3 + name.len()) % 64);
        let seen = self.0 & bit != 0;
        self.0 |= bit;
        seen
    }
}

fn seen_before(labels: &[Label<'_>; MAX_LABELS], count: usize, name: &str) -> bool {
    labels
        .iter()
        .take(count)
        .any(|label| label.name.as_str() == name)
}

/// Returns the offset of a backslash that starts no valid escape.
fn invalid_escape(raw: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr(b'\\', raw.as_bytes().get(at..)?)?;
        if !matches!(raw.as_bytes().get(at + 1), Some(b'\\' | b'"' | b'n')) {
            return Some(at);
        }
        at += 2;
    }
}
