//! Query strings and percent-encoding, by the rules of Go's `net/url`: a parameter that is not
//! well-formed is ignored.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// The parameters of a query string, decoded on access.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a>(&'a str);

impl<'a> Query<'a> {
    /// The part of a URI after the question mark.
    pub fn new(query: Option<&'a str>) -> Self {
        Self(query.unwrap_or_default())
    }

    /// Returns the first value of a parameter; `Some("")` for a name without a value.
    pub fn first(&self, name: &str) -> Option<Cow<'a, str>> {
        self.all(name).next()
    }

    /// Returns all values of a parameter, in order.
    pub fn all(&self, name: &str) -> impl Iterator<Item = Cow<'a, str>> {
        self.0.split('&').filter_map(move |pair| {
            // Go ignores pairs with a semicolon, which used to be a separator.
            if pair.contains(';') {
                return None;
            }
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode_form(key)? == name)
                .then(|| decode_form(value))
                .flatten()
        })
    }
}

/// Decodes percent-encoding; `None` if it is not well-formed or not UTF-8.
pub fn percent_decode(text: &str) -> Option<Cow<'_, str>> {
    let is_encoded = |rest: &str| matches!(rest.as_bytes(), [high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit());
    if !text.split('%').skip(1).all(is_encoded) {
        return None;
    }
    percent_decode_str(text).decode_utf8().ok()
}

/// Decodes a name or a value of a query, in which `+` is a space.
fn decode_form(text: &str) -> Option<Cow<'_, str>> {
    if text.contains('+') {
        return percent_decode(&text.replace('+', " ")).map(|text| Cow::Owned(text.into_owned()));
    }
    percent_decode(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let query = Query::new(Some("a=1&b=x%3Dy+z&a=2&c&bad=%zz&d=1;e=2&f=%C3%A4&g=%ff%4"));
        assert_eq!(query.all("a").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(query.first("b").unwrap(), "x=y z");
        assert_eq!(query.first("c").unwrap(), "");
        assert_eq!(query.first("f").unwrap(), "ä");
        for ignored in ["bad", "d", "e", "g", "h"] {
            assert_eq!(query.first(ignored), None);
        }
        assert_eq!(Query::new(None).first("a"), None);
    }

    #[test]
    fn percent_encoding_is_decoded_completely_or_not_at_all() {
        assert_eq!(percent_decode("a%2Fb+c").unwrap(), "a/b+c");
        assert_eq!(percent_decode(""), Some(Cow::Borrowed("")));
        for malformed in ["%", "a%2", "%2F%zz", "%%41", "%ff"] {
            assert_eq!(percent_decode(malformed), None, "{malformed}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_query_is_parsed(query in "\\PC{0,60}|[%0-9a-fA-F&=+]{0,60}") {
            Query::new(Some(&query)).all("a").for_each(drop);
        }

        #[test]
        fn encoded_values_are_restored(value in "\\PC{0,40}") {
            let encoded = percent_encoding::utf8_percent_encode(&value, percent_encoding::NON_ALPHANUMERIC);
            let query = format!("x=&v={encoded}");
            let decoded = Query::new(Some(&query)).first("v").map(Cow::into_owned);
            prop_assert_eq!(decoded, Some(value));
        }
    }
}
