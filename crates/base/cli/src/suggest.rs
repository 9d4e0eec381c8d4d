//! The nearest known name to an unknown one.

use strsim::levenshtein;

/// Returns the candidate with the fewest edits from `wanted`, unless even that is too different.
pub(crate) fn nearest<'a>(
    wanted: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let limit = (wanted.chars().count() / 3).max(2);
    candidates
        .into_iter()
        .map(|candidate| (levenshtein(wanted, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested_unless_it_is_too_different() {
        let known = ["log-level", "logging-format", "metric-resolution"];
        assert_eq!(nearest("log-levle", known), Some("log-level"));
        assert_eq!(
            nearest("metrics-resolution", known),
            Some("metric-resolution")
        );
        assert_eq!(nearest("kubelet-port", known), None);
    }
}
