//! Label selectors, with the whole grammar of `labelSelector` parameters.

use thiserror::Error;

/// A parsed label selector: all requirements must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LabelSelector {
    requirements: Vec<LabelRequirement>,
}

/// A requirement on one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelRequirement {
    /// The key of the label.
    pub key: String,
    pub operator: LabelOperator,
}

/// The operator of a requirement, with its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelOperator {
    /// One of these (a single one for `=`).
    In(Vec<String>),
    /// None of these; a missing label will do.
    NotIn(Vec<String>),
    /// Anything, but the label must be there.
    Exists,
    /// The label must be missing.
    DoesNotExist,
    /// An integer above this one.
    GreaterThan(i64),
    /// An integer below this one.
    LessThan(i64),
}

/// An invalid label selector, with the message of the API server.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unable to parse requirement: {0}")]
pub struct LabelSelectorError(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    Text(&'a str),
    Comma,
    Open,
    Close,
    Not,
    Equals,
    NotEquals,
    Greater,
    Less,
    End,
}

struct Lexer<'a> {
    rest: &'a str,
}

impl LabelSelector {
    /// Reads a `labelSelector` parameter. The empty text selects everything.
    pub fn parse(text: &str) -> Result<Self, LabelSelectorError> {
        let mut lexer = Lexer { rest: text };
        let mut requirements = Vec::new();
        if lexer.peek() == Token::End {
            return Ok(Self::default());
        }
        loop {
            requirements.push(requirement(&mut lexer)?);
            match lexer.next() {
                Token::End => return Ok(Self { requirements }),
                Token::Comma => match lexer.peek() {
                    Token::Text(_) | Token::Not => {}
                    other => {
                        return Err(unexpected(other, "identifier after ','"));
                    }
                },
                other => return Err(unexpected(other, "',' or 'end of string'")),
            }
        }
    }

    /// Whether everything is selected.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// All that must hold, in the order of the text: what an index can answer from.
    pub fn requirements(&self) -> &[LabelRequirement] {
        &self.requirements
    }

    /// Whether an object with these labels is selected.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = label(&requirement.key);
            let number = || value.and_then(|value| value.parse::<i64>().ok());
            match &requirement.operator {
                LabelOperator::In(values) => {
                    value.is_some_and(|value| values.iter().any(|v| v == value))
                }
                LabelOperator::NotIn(values) => {
                    value.is_none_or(|value| values.iter().all(|v| v != value))
                }
                LabelOperator::Exists => value.is_some(),
                LabelOperator::DoesNotExist => value.is_none(),
                LabelOperator::GreaterThan(bound) => number().is_some_and(|number| number > *bound),
                LabelOperator::LessThan(bound) => number().is_some_and(|number| number < *bound),
            }
        })
    }
}

impl<'a> Lexer<'a> {
    fn peek(&mut self) -> Token<'a> {
        let rest = self.rest;
        let token = self.next();
        self.rest = rest;
        token
    }

    fn next(&mut self) -> Token<'a> {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let mut chars = self.rest.chars();
        let (token, rest) = match chars.next() {
            None => (Token::End, ""),
            Some(',') => (Token::Comma, chars.as_str()),
            Some('(') => (Token::Open, chars.as_str()),
            Some(')') => (Token::Close, chars.as_str()),
            Some('>') => (Token::Greater, chars.as_str()),
            Some('<') => (Token::Less, chars.as_str()),
            Some('!') => match chars.as_str().strip_prefix('=') {
                Some(rest) => (Token::NotEquals, rest),
                None => (Token::Not, chars.as_str()),
            },
            Some('=') => {
                let rest = chars.as_str();
                (Token::Equals, rest.strip_prefix('=').unwrap_or(rest))
            }
            Some(_) => {
                let end = self.rest.find(is_special).unwrap_or(self.rest.len());
                let (text, rest) = self.rest.split_at(end);
                (Token::Text(text), rest)
            }
        };
        self.rest = rest;
        token
    }
}

fn is_special(c: char) -> bool {
    matches!(
        c,
        ' ' | '\t' | '\r' | '\n' | '=' | '!' | '(' | ')' | ',' | '>' | '<'
    )
}

fn requirement(lexer: &mut Lexer<'_>) -> Result<LabelRequirement, LabelSelectorError> {
    let negated = lexer.peek() == Token::Not;
    if negated {
        lexer.next();
    }
    let key = match lexer.next() {
        Token::Text(key) => key,
        other => return Err(unexpected(other, "identifier")),
    };
    validate_key(key)?;
    let next = lexer.peek();
    if negated {
        return match next {
            Token::End | Token::Comma => Ok(LabelRequirement {
                key: key.to_owned(),
                operator: LabelOperator::DoesNotExist,
            }),
            other => Err(unexpected(other, "',' or 'end of string'")),
        };
    }
    let operator = match next {
        Token::End | Token::Comma => LabelOperator::Exists,
        Token::Equals => LabelOperator::In(vec![exact_value(lexer)?]),
        Token::NotEquals => LabelOperator::NotIn(vec![exact_value(lexer)?]),
        Token::Greater => LabelOperator::GreaterThan(number(&exact_value(lexer)?)?),
        Token::Less => LabelOperator::LessThan(number(&exact_value(lexer)?)?),
        Token::Text("in") => LabelOperator::In(value_set(lexer)?),
        Token::Text("notin") => LabelOperator::NotIn(value_set(lexer)?),
        other => return Err(unexpected(other, "in, notin, =, ==, !=, gt, lt")),
    };
    Ok(LabelRequirement {
        key: key.to_owned(),
        operator,
    })
}

/// The value behind an operator, which may be missing and is then empty.
fn exact_value(lexer: &mut Lexer<'_>) -> Result<String, LabelSelectorError> {
    lexer.next();
    match lexer.peek() {
        Token::End | Token::Comma => Ok(String::new()),
        Token::Text(value) => {
            lexer.next();
            validate_value(value)?;
            Ok(value.to_owned())
        }
        other => Err(unexpected(other, "identifier")),
    }
}

fn value_set(lexer: &mut Lexer<'_>) -> Result<Vec<String>, LabelSelectorError> {
    lexer.next();
    match lexer.next() {
        Token::Open => {}
        other => return Err(unexpected(other, "'('")),
    }
    let mut values = Vec::new();
    let mut pending = true;
    loop {
        match lexer.next() {
            Token::Text(value) if pending => {
                validate_value(value)?;
                values.push(value.to_owned());
                pending = false;
            }
            // Two commas in a row, or one next to a parenthesis, stand for an empty value.
            Token::Comma => {
                if pending {
                    values.push(String::new());
                }
                pending = true;
            }
            Token::Close => {
                if pending {
                    values.push(String::new());
                }
                return Ok(values);
            }
            other => return Err(unexpected(other, "',', or ')'")),
        }
    }
}

fn number(text: &str) -> Result<i64, LabelSelectorError> {
    text.parse().map_err(|_| {
        LabelSelectorError(format!(
            "values[0][key]: Invalid value: {text:?}: for 'Gt', 'Lt' operators, the value must be an integer"
        ))
    })
}

fn unexpected(found: Token<'_>, expected: &str) -> LabelSelectorError {
    let found = match found {
        Token::Text(text) => text,
        Token::Comma => ",",
        Token::Open => "(",
        Token::Close => ")",
        Token::Not => "!",
        Token::Equals => "=",
        Token::NotEquals => "!=",
        Token::Greater => ">",
        Token::Less => "<",
        Token::End => "",
    };
    LabelSelectorError(format!("found '{found}', expected: {expected}"))
}

/// A qualified name: an optional DNS prefix and a slash, then a name part.
fn validate_key(key: &str) -> Result<(), LabelSelectorError> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let prefix_is_good = prefix.is_none_or(|prefix| {
        !prefix.is_empty()
            && prefix.len() <= 253
            && prefix.split('.').all(|part| {
                is_bounded_by_alphanumerics(part)
                    && part
                        .bytes()
                        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            })
    });
    if prefix_is_good && is_name_part(name) {
        Ok(())
    } else {
        Err(LabelSelectorError(format!(
            "key: Invalid value: {key:?}: name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
        )))
    }
}

fn validate_value(value: &str) -> Result<(), LabelSelectorError> {
    if value.is_empty() || is_name_part(value) {
        Ok(())
    } else {
        Err(LabelSelectorError(format!(
            "values[0][key]: Invalid value: {value:?}: a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
        )))
    }
}

fn is_name_part(text: &str) -> bool {
    text.len() <= 63
        && is_bounded_by_alphanumerics(text)
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

fn is_bounded_by_alphanumerics(text: &str) -> bool {
    let good = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    good(text.as_bytes().first()) && good(text.as_bytes().last())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn selects(selector: &str, labels: &[(&str, &str)]) -> bool {
        let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
        LabelSelector::parse(selector)
            .unwrap()
            .matches(|key| labels.get(key).copied())
    }

    #[test]
    fn every_operator_selects() {
        let labels = &[("app", "web"), ("tier", "front"), ("n", "5"), ("empty", "")];
        for selector in [
            "",
            "app",
            "app=web",
            "app==web",
            "app = web , tier = front",
            "app!=db",
            "missing!=x",
            "app in (db, web)",
            "app notin (db)",
            "missing notin (x)",
            "!missing",
            "n>4,n<6",
            "empty=",
            "empty in (,a)",
            "empty in (a,)",
            "empty in ()",
            "app in (web),!x/y",
        ] {
            assert!(selects(selector, labels), "{selector}");
        }
        for selector in [
            "missing",
            "app=db",
            "app!=web",
            "app in (db)",
            "!app",
            "n>5",
            "missing=",
            "app>3",
        ] {
            assert!(!selects(selector, labels), "{selector}");
        }
    }

    #[test]
    fn operators_may_be_keys_and_values() {
        assert!(selects("in in (in,notin)", &[("in", "in")]));
        assert!(selects("notin=in", &[("notin", "in")]));
    }

    #[test]
    fn invalid_texts_are_rejected() {
        for selector in [
            ",",
            "a,",
            "a,,b",
            "=a",
            "a=b=c",
            "a in",
            "a in b",
            "a in (b",
            "a in (b))",
            "(a)",
            "!a=b",
            "a b",
            "a>b",
            "-a",
            "a/b/c",
            "a=b!",
            "A.b/c_",
            "a in (b c)",
            "/a",
        ] {
            assert!(LabelSelector::parse(selector).is_err(), "{selector}");
        }
        let long = "a".repeat(64);
        assert!(LabelSelector::parse(&long).is_err());
        assert!(LabelSelector::parse(&format!("a={long}")).is_err());
    }

    #[test]
    fn errors_name_what_was_found() {
        let error = LabelSelector::parse("a,").unwrap_err();
        assert_eq!(
            error.to_string(),
            "unable to parse requirement: found '', expected: identifier after ','"
        );
    }

    fn set() -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec("[a-c]{0,1}", 1..4)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

        #[test]
        fn arbitrary_text_never_panics(text in "[a-c!=<>(), in/.-]{0,24}") {
            let _ = LabelSelector::parse(&text);
        }

        /// The oracle is the definition of the operators over a map.
        #[test]
        fn sets_mean_what_they_say(
            values in set(),
            value in prop::option::of("[a-c]{0,1}"),
            space in "[ \t]{0,2}",
        ) {
            let list = values.join(&format!(",{space}"));
            let labels: BTreeMap<&str, &str> = value.iter().map(|value| ("k", value.as_str())).collect();
            let label = |key: &str| labels.get(key).copied();
            let within = value.as_ref().is_some_and(|value| values.contains(value));
            let parse = |text: String| LabelSelector::parse(&text).unwrap();
            prop_assert_eq!(parse(format!("k{space} in{space}({list})")).matches(label), within);
            prop_assert_eq!(parse(format!("k notin ({list}){space}")).matches(label), !within);
            prop_assert_eq!(parse("k".to_owned()).matches(label), value.is_some());
            prop_assert_eq!(parse("!k".to_owned()).matches(label), value.is_none());
        }
    }
}
