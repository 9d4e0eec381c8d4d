//! Text formats of amounts and times in Kubernetes and Go.

use std::str::FromStr;

use kubevitals_model::{GoDuration, ProxyRules, Quantity, Timestamp};

/// Tokens of quantities.
pub(crate) const QUANTITY_TOKENS: &[&[u8]] = &[
    b"-",
    b"+",
    b".",
    b"0",
    b"1",
    b"9",
    b"n",
    b"u",
    b"m",
    b"k",
    b"M",
    b"G",
    b"T",
    b"P",
    b"E",
    b"Ki",
    b"Mi",
    b"Gi",
    b"Ti",
    b"Pi",
    b"Ei",
    b"e3",
    b"E-9",
    b"1024",
    b"9223372036854775807",
    b"170141183460469231731687303715",
    b"000000000001",
];

/// Tokens of durations.
pub(crate) const DURATION_TOKENS: &[&[u8]] = &[
    b"-",
    b"+",
    b".",
    b"0",
    b"1",
    b"9",
    b"ns",
    b"us",
    "\u{b5}s".as_bytes(),
    "\u{3bc}s".as_bytes(),
    b"ms",
    b"s",
    b"m",
    b"h",
    b"2562047h47m16.854775807s",
    b"9223372036854775808ns",
];

/// Tokens of timestamps.
pub(crate) const TIMESTAMP_TOKENS: &[&[u8]] = &[
    b"-",
    b"+",
    b":",
    b".",
    b"T",
    b"Z",
    b"0",
    b"9",
    b"2026-11-15",
    b"T21:29:00",
    b".123456",
    b"+14:00",
    b"-00:01",
    b"0000",
    b"9999-12-31",
    b"02-29",
    b"23:59:60",
];

/// Tokens of a list of hosts, and of a host after it.
pub(crate) const NO_PROXY_TOKENS: &[&[u8]] = &[
    b",",
    b" ",
    b"\n",
    b"*",
    b".",
    b":",
    b"[",
    b"]",
    b"/",
    b"/8",
    b"/128",
    b":443",
    b"10.0.0.1",
    b"127.0.0.1",
    b"fd00::1",
    b"::ffff:10.0.0.1",
    b"example.com",
    b"localhost",
    b"%eth0",
];

/// A valid quantity has a canonical text that parses as the same quantity.
///
/// # Panics
///
/// If the property is violated.
pub fn quantity(data: &[u8]) {
    let Some(quantity) = read::<Quantity>(data) else {
        return;
    };
    let text = quantity.to_string();
    let again: Quantity = text.parse().expect("a canonical text can be read");
    assert_eq!(again, quantity, "{text}");
    assert_eq!(again.with_format(quantity.format()).to_string(), text);
    for value in [quantity.value(), quantity.milli_value()]
        .into_iter()
        .flatten()
    {
        assert_eq!(i128::from(value.signum()), quantity.nanos().signum());
    }
    let sum = quantity
        .checked_add(quantity)
        .and_then(|sum| sum.checked_sub(quantity));
    assert!(sum.is_none_or(|sum| sum == quantity));
}

/// A valid duration prints as in Go, and parses as itself.
///
/// # Panics
///
/// If the property is violated.
pub fn duration(data: &[u8]) {
    let Some(duration) = read::<GoDuration>(data) else {
        return;
    };
    let text = duration.to_string();
    assert_eq!(text.parse(), Ok(duration));
    let mut out = Vec::new();
    duration.write_to(&mut out);
    assert_eq!(out, text.as_bytes());
}

/// A timestamp that is valid and printable parses as itself.
///
/// # Panics
///
/// If the property is violated.
pub fn timestamp(data: &[u8]) {
    let Some(timestamp) = read::<Timestamp>(data) else {
        return;
    };
    let text = timestamp.to_string();
    if text.len() != "2026-11-15T21:29:00.000Z".len() {
        // The offset moved it out of the years 0000 to 9999.
        return;
    }
    assert_eq!(text.parse(), Ok(timestamp));
    let seconds = timestamp.rfc3339_seconds();
    let seconds: Timestamp = seconds.as_str().parse().expect("whole seconds can be read");
    assert_eq!(seconds.unix_seconds(), timestamp.unix_seconds());
}

/// A list of hosts exempts no fewer hosts than a part of it.
///
/// # Panics
///
/// If the property is violated.
pub fn no_proxy(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (list, host) = text.split_once('\n').unwrap_or((text, "example.com"));
    let is_exempt = |list: &str| {
        let rules = ProxyRules::from_env(|name| match name {
            "HTTPS_PROXY" => Some("proxy.test:3128".to_owned()),
            "NO_PROXY" => Some(list.to_owned()),
            _ => None,
        });
        rules.proxy_for(true, host, 443).is_none()
    };
    let whole = is_exempt(list);
    for part in list.split(',') {
        assert!(whole || !is_exempt(part), "{part:?} of {list:?}");
    }
    assert!(is_exempt(&format!("{list},*")));
}

fn read<T: FromStr>(data: &[u8]) -> Option<T> {
    std::str::from_utf8(data).ok()?.parse().ok()
}
