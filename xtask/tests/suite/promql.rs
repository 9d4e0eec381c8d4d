//! The names in an expression of `PromQL`: enough to compare them with the metrics that exist. The
//! grammar itself is checked by `promtool`.

use std::collections::BTreeSet;

/// The names in an expression.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    /// The metrics, each with the innermost function around it.
    pub(crate) metrics: BTreeSet<(String, Option<String>)>,
    /// The labels of matchers and of `by`, `on` and the like.
    pub(crate) labels: BTreeSet<String>,
}

/// Words between expressions.
const KEYWORDS: [&str; 7] = ["and", "or", "unless", "bool", "offset", "inf", "nan"];

/// Words before a list of labels.
const LISTS: [&str; 6] = [
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
];

/// Functions that may have a list of labels between their name and their arguments.
const AGGREGATIONS: [&str; 12] = [
    "sum",
    "min",
    "max",
    "avg",
    "count",
    "topk",
    "bottomk",
    "quantile",
    "stddev",
    "stdvar",
    "group",
    "count_values",
];

/// Finds the names in an expression.
pub(crate) fn names(expr: &str) -> Names {
    let mut names = Names::default();
    // The function of each open parenthesis, and the aggregation whose parenthesis is to come.
    let mut open: Vec<Option<String>> = Vec::new();
    let mut aggregation = None;
    let mut rest = expr;
    while let Some(c) = rest.chars().next() {
        if c.is_ascii_alphabetic() || c == '_' || c == ':' {
            let end = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            rest = after.trim_start();
            if LISTS.contains(&word) {
                if let Some((list, after)) = list(rest) {
                    names.labels.extend(list);
                    rest = after;
                }
            } else if AGGREGATIONS.contains(&word) {
                aggregation = Some(word.to_owned());
            } else if let Some(after) = rest.strip_prefix('(') {
                open.push(Some(word.to_owned()));
                rest = after;
            } else if !KEYWORDS.contains(&word) {
                let function = open.iter().rev().flatten().next().cloned();
                names.metrics.insert((word.to_owned(), function));
            }
            continue;
        }
        rest = match c {
            '(' => {
                open.push(aggregation.take());
                after(rest, 1)
            }
            ')' => {
                open.pop();
                after(rest, 1)
            }
            '{' => {
                let end = closing(rest, '}');
                names
                    .labels
                    .extend(matched_labels(rest.get(1..end).unwrap()));
                after(rest, end + 1)
            }
            '[' => after(rest, closing(rest, ']') + 1),
            '"' => after(rest, closing(after(rest, 1), '"') + 2),
            // With the unit of a duration or an exponent.
            '0'..='9' => rest.trim_start_matches(|c: char| is_word(c) || c == '.'),
            _ => after(rest, c.len_utf8()),
        };
    }
    names
}

/// The labels of `(a, b) …`, and the rest.
fn list(text: &str) -> Option<(Vec<String>, &str)> {
    let (list, rest) = text.strip_prefix('(')?.split_once(')')?;
    let names = list.split(',').map(str::trim);
    let names = names.filter(|name| !name.is_empty()).map(str::to_owned);
    Some((names.collect(), rest))
}

/// The labels of `a="b",c=~"d"`.
fn matched_labels(matchers: &str) -> impl Iterator<Item = String> {
    // Values stand between quotes: every other part ends in a name and an operator.
    let parts = matchers.split('"').step_by(2);
    let names = parts.map(|part| {
        part.trim_matches(|c: char| ",=~! \n".contains(c))
            .to_owned()
    });
    names.filter(|name| !name.is_empty())
}

/// The position of a character outside of quotes.
fn closing(text: &str, wanted: char) -> usize {
    let mut quoted = false;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        let was_escaped = std::mem::replace(&mut escaped, false);
        if was_escaped {
            continue;
        }
        if c == wanted && (!quoted || wanted == '"') {
            return at;
        }
        escaped = c == '\\';
        quoted ^= c == '"';
    }
    panic!("{wanted} is missing in {text}");
}

fn after(text: &str, at: usize) -> &str {
    text.get(at..).unwrap()
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(expr: &str) -> (Vec<String>, Vec<String>) {
        let names = names(expr);
        let metrics = names
            .metrics
            .into_iter()
            .map(|(name, function)| match function {
                Some(function) => format!("{function}({name})"),
                None => name,
            });
        (metrics.collect(), names.labels.into_iter().collect())
    }

    #[test]
    fn metrics_have_the_function_around_them() {
        let expr = "histogram_quantile(0.9, sum by (job, le) (rate(a_bucket{x=~\"y|{z}\"}[5m]))) > 1e3 and on (job) b";
        let (metrics, labels) = found(expr);
        assert_eq!(metrics, ["rate(a_bucket)", "b"]);
        assert_eq!(labels, ["job", "le", "x"]);
    }

    #[test]
    fn an_aggregation_may_have_its_labels_last() {
        let (metrics, labels) = found("sum(rate(a[5m])) by (pod) / ignoring(q) group_left a:b:c");
        assert_eq!(metrics, ["rate(a)", "a:b:c"]);
        assert_eq!(labels, ["pod", "q"]);
    }

    #[test]
    fn numbers_durations_and_strings_are_no_metrics() {
        let (metrics, _) =
            found("label_replace(up offset 5m, \"dst\", \"$1\", \"src\", \"a\\\"b\") > 1.5");
        assert_eq!(metrics, ["label_replace(up)"]);
    }
}
