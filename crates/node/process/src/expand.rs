//! `$(NAME)` in commands, arguments and values, as Kubernetes expands it.

/// Replaces references to known variables. `$$` is `$`; what is unknown stays.
pub(crate) fn expand<'a>(text: &str, lookup: impl Fn(&str) -> Option<&'a str>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        if let Some(escaped) = after.strip_prefix('$') {
            out.push('$');
            rest = escaped;
        } else if let Some((name, tail)) = after
            .strip_prefix('(')
            .and_then(|inner| inner.split_once(')'))
        {
            if let Some(value) = lookup(name) {
                out.push_str(value);
            } else {
                out.push_str("$(");
                out.push_str(name);
                out.push(')');
            }
            rest = tail;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample(name: &str) -> Option<&'static str> {
        match name {
            "A" => Some("a"),
            "B" => Some("$(A)"),
            "EMPTY" => Some(""),
            _ => None,
        }
    }

    #[test]
    fn references_are_expanded_as_in_kubernetes() {
        for (text, expected) in [
            ("", ""),
            ("plain", "plain"),
            ("$(A)", "a"),
            ("x$(A)y$(A)z", "xayaz"),
            ("$(B)", "$(A)"),
            ("$(EMPTY)|", "|"),
            ("$(UNKNOWN)", "$(UNKNOWN)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$a"),
            ("$$$$(A)", "$$(A)"),
            ("$A", "$A"),
            ("$", "$"),
            ("a$", "a$"),
            ("$$", "$"),
            ("$(A", "$(A"),
            ("$()", "$()"),
            ("$(A)$(", "a$("),
            ("$(ä)$(A)", "$(ä)a"),
        ] {
            assert_eq!(expand(text, sample), expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn text_without_dollars_is_unchanged(text in "[^$]*") {
            prop_assert_eq!(expand(&text, sample), text);
        }

        #[test]
        fn anything_expands_without_panic(text in "[$()A-C ]{0,40}") {
            expand(&text, sample);
        }
    }
}
