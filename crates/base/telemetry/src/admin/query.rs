//! The query part of a request's address.

use std::borrow::Cow;

/// The decoded value of every parameter with that name, in order; empty where there is no `=`.
pub(super) fn values<'q>(
    query: Option<&'q str>,
    name: &'q str,
) -> impl Iterator<Item = Cow<'q, str>> {
    query
        .unwrap_or_default()
        .split('&')
        .filter_map(move |pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key) == name).then(|| decode(value))
        })
}

/// Undoes percent-encoding. What is not well-formed stays as it is.
pub(super) fn decode(text: &str) -> Cow<'_, str> {
    if !text.contains(['%', '+']) {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match (first, after) {
            (b'%', [high, low, after @ ..])
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                out.push(hex(*high) << 4 | hex(*low));
                rest = after;
            }
            (b'+', _) => out.push(b' '),
            (other, _) => out.push(*other),
        }
    }
    Cow::Owned(String::from_utf8_lossy(&out).into_owned())
}

const fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit.wrapping_sub(b'A').wrapping_add(10),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parameters_are_found_and_decoded() {
        let query = Some("verbose&exclude=a%2Fb&exclude=c+d&x=1&exclude=%zz%4");
        let found = |name| values(query, name).collect::<Vec<_>>();
        assert_eq!(found("exclude"), ["a/b", "c d", "%zz%4"]);
        assert_eq!(found("verbose"), [""]);
        assert_eq!(found("seconds"), [""; 0]);
        assert_eq!(values(None, "verbose").count(), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_query_is_read(query in "\\PC{0,60}|[%0-9a-fA-F&=+]{0,60}") {
            values(Some(&query), "exclude").for_each(drop);
        }
    }
}
