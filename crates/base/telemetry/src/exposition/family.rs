//! Splits OpenMetrics text into families and their sample lines, borrowing all of it.

use std::collections::HashMap;

/// All lines about one metric name.
#[derive(Debug)]
pub(super) struct Family<'t> {
    pub(super) name: &'t str,
    pub(super) kind: &'static Kind,
    pub(super) help: Option<&'t str>,
    unit: Option<&'t str>,
    pub(super) lines: Vec<&'t str>,
}

/// An OpenMetrics type, and what becomes of it in the older format.
#[derive(Debug)]
pub(super) struct Kind {
    open_metrics: &'static str,
    pub(super) word: &'static str,
    /// What the samples' names end in, and with them the family's name in the older format.
    pub(super) suffix: &'static str,
    /// The suffixes that samples of such a family can have.
    parts: &'static [&'static str],
}

const UNKNOWN: Kind = Kind {
    open_metrics: "unknown",
    word: "untyped",
    suffix: "",
    parts: &[""],
};

const KINDS: [Kind; 7] = [
    Kind {
        open_metrics: "counter",
        word: "counter",
        suffix: "_total",
        parts: &["_total", "_created"],
    },
    Kind {
        open_metrics: "gauge",
        word: "gauge",
        suffix: "",
        parts: &[""],
    },
    Kind {
        open_metrics: "histogram",
        word: "histogram",
        suffix: "",
        parts: &["_bucket", "_sum", "_count", "_created"],
    },
    Kind {
        open_metrics: "info",
        word: "gauge",
        suffix: "_info",
        parts: &["_info"],
    },
    Kind {
        open_metrics: "stateset",
        word: "gauge",
        suffix: "",
        parts: &[""],
    },
    Kind {
        open_metrics: "summary",
        word: "summary",
        suffix: "",
        parts: &["", "_sum", "_count", "_created"],
    },
    UNKNOWN,
];

impl Kind {
    fn from_word(word: &str) -> &'static Self {
        KINDS
            .iter()
            .find(|kind| kind.open_metrics == word)
            .unwrap_or(&UNKNOWN)
    }

    /// Whether the family's samples are split over several lines that belong together.
    pub(super) fn is_compound(&self) -> bool {
        matches!(self.word, "histogram" | "summary")
    }
}

impl<'t> Family<'t> {
    fn new(name: &'t str) -> Self {
        Self {
            name,
            kind: &UNKNOWN,
            help: None,
            unit: None,
            lines: Vec::new(),
        }
    }

    /// The suffix of a sample's name; `None` if the sample is of another family.
    pub(super) fn part_of(&self, sample: &str) -> Option<&'static str> {
        let suffix = sample.strip_prefix(self.name)?;
        self.kind
            .parts
            .iter()
            .find(|part| **part == suffix)
            .copied()
    }

    pub(super) fn write_open_metrics(&self, out: &mut Vec<u8>) {
        let lines = [
            ("HELP", self.help),
            ("TYPE", Some(self.kind.open_metrics)),
            ("UNIT", self.unit),
        ];
        for (keyword, text) in lines {
            let Some(text) = text else { continue };
            for piece in ["# ", keyword, " ", self.name, " "] {
                out.extend_from_slice(piece.as_bytes());
            }
            write_quotes_escaped(out, text);
            out.push(b'\n');
        }
        for line in &self.lines {
            out.extend_from_slice(line.as_bytes());
            out.push(b'\n');
        }
    }
}

/// Lists the families of a text in the order in which they begin.
///
/// Families of one name are joined: two sub-registries that differ in a constant label write the
/// family twice, which neither format allows. If they differ in type too, the first one counts.
pub(super) fn index(text: &str) -> Vec<Family<'_>> {
    let mut families: Vec<Family<'_>> = Vec::new();
    let mut positions: HashMap<&str, usize> = HashMap::new();
    let mut current: Option<usize> = None;
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix('#') {
            let Some((keyword, name, rest)) = split_comment(comment) else {
                continue;
            };
            let position = position_of(&mut families, &mut positions, name);
            current = Some(position);
            let Some(family) = families.get_mut(position) else {
                continue;
            };
            match keyword {
                "HELP" => family.help = family.help.or(Some(rest)),
                "UNIT" => family.unit = family.unit.or(Some(rest)),
                _ if family.lines.is_empty() => family.kind = Kind::from_word(rest),
                _ => {}
            }
        } else if !line.is_empty() {
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            let belongs = current.filter(|at| {
                families
                    .get(*at)
                    .is_some_and(|family| family.part_of(name).is_some())
            });
            let position =
                belongs.unwrap_or_else(|| position_of(&mut families, &mut positions, name));
            if let Some(family) = families.get_mut(position) {
                family.lines.push(line);
            }
        }
    }
    families.retain(|family| !family.name.is_empty());
    families
}

/// OpenMetrics wants quotes escaped in help texts; the library writes them as they were registered.
fn write_quotes_escaped(out: &mut Vec<u8>, text: &str) {
    let mut escaped = false;
    for byte in text.bytes() {
        if byte == b'"' && !escaped {
            out.push(b'\\');
        }
        escaped = byte == b'\\' && !escaped;
        out.push(byte);
    }
}

fn position_of<'t>(
    families: &mut Vec<Family<'t>>,
    positions: &mut HashMap<&'t str, usize>,
    name: &'t str,
) -> usize {
    *positions.entry(name).or_insert_with(|| {
        families.push(Family::new(name));
        families.len() - 1
    })
}

/// `None` for `# EOF` and everything that is not about a family.
fn split_comment(comment: &str) -> Option<(&str, &str, &str)> {
    let mut words = comment.strip_prefix(' ')?.splitn(3, ' ');
    let keyword = words
        .next()
        .filter(|word| matches!(*word, "HELP" | "TYPE" | "UNIT"))?;
    Some((keyword, words.next()?, words.next().unwrap_or_default()))
}
