//! Answers of the targets of probes.

use kubevitals_probes::{DnsMessage, Prober, Target};

/// Heads of messages, names, and heads of records.
pub(crate) const DNS_TOKENS: &[&[u8]] = &[
    b"\0\x01\x81\x80\0\x01\0\x01\0\0\0\0",
    b"\0\x01\x83\x80\0\x01\0\x01\0\0\0\0",
    b"\x07example\x03com\0",
    b"\xc0\x0c",
    b"\xc0\x1d",
    b"\xc0\0",
    b"\x3f",
    b"\0\x01\0\x01",
    b"\0\x01\0\x01\0\0\x01\x2c\0\x04\xc0\0\x02\x01",
    b"\0\x05\0\x01\0\0\x01\x2c\0\x02\xc0\x0c",
    b"\0\x06\0\x01\0\0\x01\x2c\0\x18\xc0\x0c\xc0\x0c",
    b"\0\x10\0\x01\0\0\x01\x2c\0\x05\x04abcd",
    b"\0\x21\0\x01\0\0\x01\x2c\0\x08",
    b"\x01\x01\0\x01\0\0\x01\x2c\0\x0a\0\x05issue",
    b"\xff\xff",
];

/// The shortest record, of the root without data.
const SHORTEST_RECORD: usize = 11;
/// The head of a message.
const HEAD: usize = 12;

/// No bytes make the decoder panic. There are no more records than fit into the message, each is
/// one line of printable text with four tabs, and its size is bounded.
///
/// # Panics
///
/// If the property is violated.
pub fn dns_message(bytes: &[u8]) {
    let Ok(message) = DnsMessage::decode(bytes) else {
        return;
    };
    let records = message.texts().count();
    assert!(records <= bytes.len().saturating_sub(HEAD) / SHORTEST_RECORD);
    for text in message.texts() {
        let is_printable = |byte: u8| byte == b'\t' || (b' '..=b'~').contains(&byte);
        assert!(text.bytes().all(is_printable), "{text:?}");
        assert_eq!(text.matches('\t').count(), 4, "{text:?}");
        // A byte is at most four characters, and a name is at most 255 bytes, twice in a record.
        assert!(
            text.len() <= bytes.len() * 4 + 4096,
            "{} characters",
            text.len()
        );
    }
}

/// Parts of targets.
pub(crate) const TARGET_TOKENS: &[&[u8]] = &[
    b"http://",
    b"https://",
    b"ftp://",
    b"[",
    b"]",
    b"::1",
    b":",
    b"443",
    b"65536",
    b"@",
    b"/",
    b"?",
    b"#",
    b"%",
    b"..",
    b"example.com",
    b"127.0.0.1",
    b"\r\n",
];

/// A target is parsed or refused for every prober, and its text is kept.
///
/// # Panics
///
/// If the property is violated.
pub fn probe_target(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    for prober in [
        Prober::Http(Box::default()),
        Prober::Tcp(Box::default()),
        Prober::Dns(Box::default()),
        Prober::Exec(Box::default()),
    ] {
        match Target::parse(text, &prober) {
            Ok(target) => assert_eq!(target.as_str(), text),
            // Shown to people, and so bounded.
            Err(error) => assert!(error.to_string().len() < 3000, "{error}"),
        }
    }
}
