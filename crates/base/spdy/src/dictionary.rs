//! The preset dictionary of header blocks, as the specification of SPDY/3 lists it: words with
//! their lengths, then text.

/// Adler-32 of the dictionary, which a zlib stream names.
pub(crate) const ADLER: u32 = 0xe3c6_a7c2;

const LEN: usize = 1423;

/// The dictionary.
pub(crate) const DICTIONARY: [u8; LEN] = build();

/// Words, each preceded by its length in four bytes.
const WORDS: &[&str] = &[
    "options",
    "head",
    "post",
    "put",
    "delete",
    "trace",
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "connection",
    "content-base",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-md5",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expect",
    "expires",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-modified",
    "location",
    "max-forwards",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "referer",
    "retry-after",
    "server",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "method",
    "get",
    "status",
    "200 OK",
    "version",
    "HTTP/1.1",
    "url",
    "public",
    "set-cookie",
    "keep-alive",
    "origin",
];

/// What follows the words.
const TEXT: &str = "\
    100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505\
    203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Una\
    uthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service\
    \x20UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, \
    Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,applicat\
    ion/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf\
    -8charset=iso-8859-1,utf-,*,enq=0.\
";

#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, which reports an index out of range"
)]
const fn build() -> [u8; LEN] {
    let mut out = [0; LEN];
    let (mut at, mut word) = (0, 0);
    while word < WORDS.len() {
        let bytes = WORDS[word].as_bytes();
        out[at + 3] = bytes.len().to_le_bytes()[0];
        at = append(&mut out, at + 4, bytes);
        word += 1;
    }
    at = append(&mut out, at, TEXT.as_bytes());
    assert!(at == LEN, "a word is missing");
    out
}

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
const fn append(out: &mut [u8; LEN], at: usize, bytes: &[u8]) -> usize {
    let mut index = 0;
    while index < bytes.len() {
        out[at + index] = bytes[index];
        index += 1;
    }
    at + bytes.len()
}
