//! A second parser of the format, written for simplicity: a character at a time, everything
//! owned, regardless of speed. The parser of the crate must agree with it on every body.

use std::collections::VecDeque;

use kubevitals_promtext::{Item, MAX_LABELS, MetricType, Reason, parse};

/// The item of one line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Found {
    pub(crate) line: usize,
    pub(crate) what: What,
}

/// The kind of a line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum What {
    Sample {
        terminated: bool,
        name: String,
        labels: Vec<(String, String)>,
        value: u64,
        timestamp_ms: Option<i64>,
    },
    Help {
        name: String,
        text: String,
    },
    Type {
        name: String,
        kind: MetricType,
    },
    Comment(String),
    Error(Reason),
}

/// Returns the items of the parser of the crate.
pub(crate) fn observed(body: &[u8]) -> Vec<Found> {
    let mut all = Vec::new();
    parse(body, |item| {
        all.push(match item {
            Item::Sample(sample) => Found {
                line: sample.line,
                what: What::Sample {
                    terminated: sample.terminated,
                    name: sample.name.to_string(),
                    labels: sample
                        .labels
                        .iter()
                        .map(|label| (label.name.to_string(), label.value().into_owned()))
                        .collect(),
                    value: bits(sample.value),
                    timestamp_ms: sample.timestamp_ms,
                },
            },
            Item::Help(help) => Found {
                line: help.line,
                what: What::Help {
                    name: help.name.to_string(),
                    text: help.text().into_owned(),
                },
            },
            Item::Type(kind) => Found {
                line: kind.line,
                what: What::Type {
                    name: kind.name.to_string(),
                    kind: kind.kind,
                },
            },
            Item::Comment(comment) => Found {
                line: comment.line,
                what: What::Comment(comment.text.to_owned()),
            },
            Item::Error(error) => Found {
                line: error.line,
                what: What::Error(error.reason),
            },
        });
    });
    all
}

/// Returns the expected items.
pub(crate) fn expected(body: &[u8]) -> Vec<Found> {
    let mut lines: Vec<&[u8]> = body.split(|byte| *byte == b'\n').collect();
    let unterminated = lines.pop().filter(|last| !last.is_empty());
    let terminated = lines.into_iter().map(|line| (line, true));
    let mut all = Vec::new();
    for (at, (line, terminated)) in terminated
        .chain(unterminated.map(|l| (l, false)))
        .enumerate()
    {
        let what = match str::from_utf8(line) {
            Err(_) => Some(What::Error(Reason::InvalidUtf8)),
            Ok(text) => {
                let text = text.strip_suffix('\r').unwrap_or(text);
                Line(text.chars().collect())
                    .read(terminated)
                    .unwrap_or_else(|why| Some(What::Error(why)))
            }
        };
        if let Some(what) = what {
            all.push(Found { line: at + 1, what });
        }
    }
    all
}

/// The unread characters of a line.
struct Line(VecDeque<char>);

impl Line {
    fn read(mut self, terminated: bool) -> Result<Option<What>, Reason> {
        self.skip_blanks();
        match self.peek() {
            None => Ok(None),
            Some('#') => {
                self.0.pop_front();
                self.comment().map(Some)
            }
            Some('{') => {
                self.0.pop_front();
                self.skip_blanks();
                Err(match self.peek() {
                    Some('"') => Reason::QuotedName,
                    _ => Reason::MissingMetricName,
                })
            }
            Some(_) => self.sample(terminated).map(Some),
        }
    }

    fn sample(&mut self, terminated: bool) -> Result<What, Reason> {
        let name = self.metric_name()?;
        if !matches!(self.peek(), None | Some(' ' | '\t' | '{')) {
            return Err(Reason::InvalidMetricName);
        }
        self.skip_blanks();
        let mut labels = Vec::new();
        if self.peek() == Some('{') {
            self.0.pop_front();
            labels = self.labels()?;
        }
        self.skip_blanks();
        let value = self.token();
        if value.is_empty() {
            return Err(Reason::MissingValue);
        }
        let value = float(&value)?;
        self.skip_blanks();
        let timestamp_ms = match self.token() {
            none if none.is_empty() => None,
            some => Some(some.parse().map_err(|_| Reason::InvalidTimestamp)?),
        };
        self.skip_blanks();
        if self.peek().is_some() {
            return Err(Reason::TrailingText);
        }
        Ok(What::Sample {
            terminated,
            name,
            labels,
            value: bits(value),
            timestamp_ms,
        })
    }

    fn labels(&mut self) -> Result<Vec<(String, String)>, Reason> {
        let mut labels: Vec<(String, String)> = Vec::new();
        loop {
            self.skip_blanks();
            match self.peek() {
                None => return Err(Reason::UnterminatedLabels),
                Some('}') => break,
                Some('"') => return Err(Reason::QuotedName),
                Some('a'..='z' | 'A'..='Z' | '_') => {}
                Some(_) => return Err(Reason::InvalidLabelName),
            }
            let name =
                self.while_matching(|c| matches!(c, 'a'..='z' | 'A'..='Z' | '_' | '0'..='9'));
            if name == "__name__" {
                return Err(Reason::ReservedLabelName);
            }
            if labels.iter().any(|(other, _)| *other == name) {
                return Err(Reason::DuplicateLabelName);
            }
            self.skip_blanks();
            if self.0.pop_front() != Some('=') {
                return Err(Reason::MissingEquals);
            }
            self.skip_blanks();
            if self.0.pop_front() != Some('"') {
                return Err(Reason::MissingQuote);
            }
            let value = self.label_value()?;
            if labels.len() == MAX_LABELS {
                return Err(Reason::TooManyLabels);
            }
            labels.push((name, value));
            self.skip_blanks();
            match self.peek() {
                Some('}') => break,
                Some(',') => self.0.pop_front(),
                Some(_) => return Err(Reason::MissingComma),
                None => return Err(Reason::UnterminatedLabels),
            };
        }
        self.0.pop_front();
        Ok(labels)
    }

    fn label_value(&mut self) -> Result<String, Reason> {
        let mut value = String::new();
        loop {
            match self.0.pop_front() {
                None => return Err(Reason::UnterminatedLabelValue),
                Some('"') => return Ok(value),
                Some('\\') => value.push(self.escaped()?),
                Some(other) => value.push(other),
            }
        }
    }

    fn escaped(&mut self) -> Result<char, Reason> {
        match self.0.pop_front() {
            Some('\\') => Ok('\\'),
            Some('"') => Ok('"'),
            Some('n') => Ok('\n'),
            _ => Err(Reason::InvalidEscape),
        }
    }

    fn comment(&mut self) -> Result<What, Reason> {
        let all: String = self.0.iter().collect();
        self.skip_blanks();
        let keyword = self.token();
        self.skip_blanks();
        if (keyword != "HELP" && keyword != "TYPE") || self.peek().is_none() {
            return Ok(What::Comment(all));
        }
        let name = self.metric_name()?;
        if !matches!(self.peek(), None | Some(' ' | '\t')) {
            return Err(Reason::InvalidMetricName);
        }
        self.0.pop_front();
        if keyword == "TYPE" {
            let word: String = self.0.drain(..).collect();
            let kind = match word.trim_matches([' ', '\t']).to_ascii_lowercase().as_str() {
                "counter" => MetricType::Counter,
                "gauge" => MetricType::Gauge,
                "histogram" => MetricType::Histogram,
                "summary" => MetricType::Summary,
                "untyped" => MetricType::Untyped,
                _ => return Err(Reason::UnknownType),
            };
            return Ok(What::Type { name, kind });
        }
        while self.0.back() == Some(&'\r') {
            self.0.pop_back();
        }
        let mut text = String::new();
        while let Some(next) = self.0.pop_front() {
            text.push(if next == '\\' { self.escaped()? } else { next });
        }
        Ok(What::Help { name, text })
    }

    fn metric_name(&mut self) -> Result<String, Reason> {
        match self.peek() {
            Some('a'..='z' | 'A'..='Z' | '_' | ':') => {
                Ok(self
                    .while_matching(|c| matches!(c, 'a'..='z' | 'A'..='Z' | '_' | ':' | '0'..='9')))
            }
            Some('"') => Err(Reason::QuotedName),
            _ => Err(Reason::InvalidMetricName),
        }
    }

    fn token(&mut self) -> String {
        self.while_matching(|c| c != ' ' && c != '\t')
    }

    fn skip_blanks(&mut self) {
        self.while_matching(|c| c == ' ' || c == '\t');
    }

    fn while_matching(&mut self, matches: impl Fn(char) -> bool) -> String {
        let mut text = String::new();
        while let Some(next) = self.peek().filter(|next| matches(*next)) {
            text.push(next);
            self.0.pop_front();
        }
        text
    }

    fn peek(&self) -> Option<char> {
        self.0.front().copied()
    }
}

fn float(token: &str) -> Result<f64, Reason> {
    let unsigned = token.trim_start_matches(['+', '-']);
    let word = unsigned.to_ascii_lowercase();
    if token.len() - unsigned.len() > 1 {
        return Err(Reason::InvalidValue);
    }
    if word == "nan" {
        return if unsigned == token {
            Ok(f64::NAN)
        } else {
            Err(Reason::InvalidValue)
        };
    }
    if word == "inf" || word == "infinity" {
        let negative = token.starts_with('-');
        return Ok(if negative {
            f64::NEG_INFINITY
        } else {
            f64::INFINITY
        });
    }
    match token.parse::<f64>() {
        Err(_) => Err(Reason::InvalidValue),
        Ok(value) if value.is_infinite() => Err(Reason::ValueOutOfRange),
        Ok(value) => Ok(value),
    }
}

/// Returns the bits of a number, the same for every NaN.
fn bits(value: f64) -> u64 {
    if value.is_nan() {
        f64::NAN.to_bits()
    } else {
        value.to_bits()
    }
}
