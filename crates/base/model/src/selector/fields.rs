//! Field selectors: the grammar of `fieldSelector` parameters. Which fields can be selected by is
//! each resource's own.

use thiserror::Error;

/// One term of a field selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldTerm {
    /// The field, as in `spec.nodeName`.
    pub field: String,
    /// Whether the field must differ from the value (`!=`).
    pub negated: bool,
    /// The value, without its escapes.
    pub value: String,
}

/// An invalid field selector, with the message of the API server.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FieldSelectorError {
    /// A term has no operator.
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    Syntax {
        /// The whole selector.
        selector: String,
        /// The term.
        term: String,
    },
    /// A backslash stands before something that needs none, or an operator without one in a value.
    #[error("invalid field selector: {value} contains an invalid escape sequence")]
    Escape {
        /// The value.
        value: String,
    },
}

impl FieldTerm {
    /// Whether a value of the field fulfils the term.
    pub fn holds(&self, value: &str) -> bool {
        (value == self.value) != self.negated
    }
}

/// Reads a `fieldSelector` parameter: all terms must hold, and the empty text has none.
pub fn parse_field_selector(selector: &str) -> Result<Vec<FieldTerm>, FieldSelectorError> {
    let mut terms = Vec::new();
    for term in split_terms(selector) {
        if term.is_empty() {
            continue;
        }
        let (field, negated, value) =
            split_operator(term).ok_or_else(|| FieldSelectorError::Syntax {
                selector: selector.to_owned(),
                term: term.to_owned(),
            })?;
        terms.push(FieldTerm {
            field: field.to_owned(),
            negated,
            value: unescape(value)?,
        });
    }
    Ok(terms)
}

/// Splits at commas that are not escaped.
fn split_terms(selector: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let mut start = 0;
    let mut escaped = false;
    for (at, c) in selector.char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == ',' {
            terms.push(selector.get(start..at).unwrap_or_default());
            start = at + 1;
        }
    }
    terms.push(selector.get(start..).unwrap_or_default());
    terms
}

/// Splits at the first operator.
fn split_operator(term: &str) -> Option<(&str, bool, &str)> {
    let at = term.char_indices().find_map(|(at, _)| {
        let rest = term.get(at..)?;
        if rest.starts_with("!=") {
            Some((at, 2, true))
        } else if rest.starts_with("==") {
            Some((at, 2, false))
        } else if rest.starts_with('=') {
            Some((at, 1, false))
        } else {
            None
        }
    });
    let (at, width, negated) = at?;
    Some((term.get(..at)?, negated, term.get(at + width..)?))
}

fn unescape(value: &str) -> Result<String, FieldSelectorError> {
    let invalid = || FieldSelectorError::Escape {
        value: value.to_owned(),
    };
    let mut text = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => text.push(c),
                _ => return Err(invalid()),
            },
            // An operator inside of a value must be escaped.
            '=' => return Err(invalid()),
            c => text.push(c),
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn terms_are_parsed() {
        let terms = parse_field_selector("metadata.name==web,,spec.nodeName!=").unwrap();
        assert_eq!(
            terms,
            [
                FieldTerm {
                    field: "metadata.name".to_owned(),
                    negated: false,
                    value: "web".to_owned()
                },
                FieldTerm {
                    field: "spec.nodeName".to_owned(),
                    negated: true,
                    value: String::new()
                },
            ]
        );
        assert!(terms[0].holds("web") && !terms[0].holds("db"));
        assert!(terms[1].holds("n1") && !terms[1].holds(""));
        assert_eq!(parse_field_selector(","), Ok(Vec::new()));
    }

    #[test]
    fn invalid_selectors_have_the_message_of_the_api_server() {
        let error = parse_field_selector("metadata.name").unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid selector: 'metadata.name'; can't understand 'metadata.name'"
        );
        let error = parse_field_selector("metadata.name=a=b").unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid field selector: a=b contains an invalid escape sequence"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        #[test]
        fn arbitrary_text_never_panics(text in "[a-z.=!,\\\\é]{0,24}") {
            let _ = parse_field_selector(&text);
        }

        #[test]
        fn escaped_values_come_back(value in "[a-z,=\\\\é]{0,12}") {
            let escaped = value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
            let terms = parse_field_selector(&format!("metadata.name={escaped},status.phase=Running")).unwrap();
            prop_assert_eq!(&terms[0].value, &value);
            prop_assert_eq!(terms.len(), 2);
        }
    }
}
