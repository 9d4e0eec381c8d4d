//! The nearest known name to one that does not exist.

/// The candidate that is fewest edits away from `wanted`, unless even that is too far to be what
/// was meant.
pub(crate) fn nearest<'a>(
    wanted: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let limit = (wanted.chars().count() / 3).max(2);
    candidates
        .into_iter()
        .map(|candidate| (edits(wanted, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions and replacements that turn one name into the other.
fn edits(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.chars().enumerate() {
        let mut diagonal = i;
        let mut previous = i + 1;
        let mut next = vec![previous];
        for (b, above) in right.iter().zip(row.iter().skip(1)) {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = *above;
            previous = replaced.min(previous + 1).min(above + 1);
            next.push(previous);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_edits() {
        assert_eq!(edits("", ""), 0);
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("log-level", "log-levl"), 1);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("abc", ""), 3);
    }

    #[test]
    fn suggests_the_nearest_or_nothing() {
        let known = ["log-level", "logging-format", "metric-resolution"];
        assert_eq!(nearest("log-levle", known), Some("log-level"));
        assert_eq!(
            nearest("metrics-resolution", known),
            Some("metric-resolution")
        );
        assert_eq!(nearest("kubelet-port", known), None);
    }
}
