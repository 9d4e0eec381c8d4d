//! The part of HTTP/1.1 that a scrape needs: the response to one GET at a time.
//!
//! hyper keeps two buffers of 8 KiB for every open connection. Ours holds none between two scrapes,
//! which saves 80 MiB with thousands of kubelets. httparse parses the head. Framing is checked as
//! hyper does: one length, no length beside chunks, no chunk size beyond 64 bits, bounded heads and
//! trailers.
//!
//! [`ResponseReader`] does no I/O: bytes go in, the body comes out.

use thiserror::Error;

/// Maximum length of a head, and of a trailer.
const MAX_HEAD: usize = 16 << 10;
const MAX_HEADERS: usize = 64;
/// Maximum length of the line with the size of a chunk.
const MAX_SIZE_LINE: usize = 256;
/// Maximum number of interim responses. Kubelets send none.
const MAX_INTERIM: u8 = 8;
/// Bytes that heads, chunk sizes and trailers may take beyond the length of the body so far.
/// Without a limit, a peer could keep the scraping thread busy with bytes that are no part of a
/// body.
const MAX_OVERHEAD: usize = 64 << 10;

/// The reason why a response cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum Http1Error {
    #[error("malformed head")]
    Head,
    #[error("head too long")]
    HeadTooLong,
    #[error("invalid or ambiguous body length")]
    Length,
    #[error("malformed chunked body")]
    Chunk,
    #[error("unknown content encoding")]
    Encoding,
    #[error("body too long")]
    BodyTooLong,
    #[error("too many interim responses")]
    Interim,
    #[error("more bytes of framing than of the body")]
    Overhead,
}

/// Reads one response, and can be reused for the next.
#[derive(Debug)]
pub(crate) struct ResponseReader {
    state: State,
    /// Bytes of a head or line that is not complete.
    pending: Vec<u8>,
    status: u16,
    keep_alive: bool,
    limit: usize,
    trailer: usize,
    interim: u8,
    /// Number of bytes that were fed.
    wire: usize,
    stated: Option<u64>,
    is_gzip: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    /// A body of which this many bytes are missing.
    Body(u64),
    ChunkSize,
    ChunkData(u64),
    /// The line end after a chunk.
    ChunkEnd,
    Trailer,
    UntilClose,
    Done,
}

/// A parsed head.
struct Head {
    len: usize,
    status: u16,
    keep_alive: bool,
    stated: Option<u64>,
    is_gzip: bool,
    next: State,
}

impl ResponseReader {
    pub(crate) fn new() -> Self {
        Self {
            state: State::Head,
            pending: Vec::new(),
            status: 0,
            keep_alive: false,
            limit: 0,
            trailer: 0,
            interim: 0,
            wire: 0,
            stated: None,
            is_gzip: false,
        }
    }

    /// Starts to read another response, whose body has at most `limit` bytes.
    pub(crate) fn start(&mut self, limit: usize) {
        let mut pending = std::mem::take(&mut self.pending);
        pending.clear();
        *self = Self {
            pending,
            limit,
            ..Self::new()
        };
    }

    /// Returns the status, or 0 before the head was read.
    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    /// Returns whether the whole response was read.
    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Returns whether the head was read.
    pub(crate) fn has_head(&self) -> bool {
        self.state != State::Head
    }

    /// Returns the length of the body as stated in the head.
    pub(crate) fn stated_length(&self) -> Option<u64> {
        self.stated
    }

    /// Returns whether the body is compressed.
    pub(crate) fn is_gzip(&self) -> bool {
        self.is_gzip
    }

    /// Returns whether the connection can carry another request.
    pub(crate) fn is_reusable(&self) -> bool {
        self.is_done() && self.keep_alive
    }

    /// Reads bytes and appends those of the body.
    pub(crate) fn feed(&mut self, mut input: &[u8], body: &mut Vec<u8>) -> Result<(), Http1Error> {
        self.wire = self.wire.saturating_add(input.len());
        while !input.is_empty() {
            input = match self.state {
                State::Head => self.head(input)?,
                State::Body(left) => {
                    let rest = self.take(left, input, body)?;
                    self.state = after(left, input.len() - rest.len(), State::Body, State::Done);
                    rest
                }
                State::UntilClose => self.take(u64::MAX, input, body)?,
                State::ChunkData(left) => {
                    let rest = self.take(left, input, body)?;
                    let taken = input.len() - rest.len();
                    self.state = after(left, taken, State::ChunkData, State::ChunkEnd);
                    rest
                }
                State::ChunkEnd => {
                    let (rest, is_complete) = self.line(input, 2)?;
                    if is_complete {
                        if !matches!(self.pending.as_slice(), b"\r\n" | b"\n") {
                            return Err(Http1Error::Chunk);
                        }
                        self.pending.clear();
                        self.state = State::ChunkSize;
                    }
                    rest
                }
                State::ChunkSize => {
                    let (rest, is_complete) = self.line(input, MAX_SIZE_LINE)?;
                    if is_complete {
                        let size = chunk_size(&self.pending).ok_or(Http1Error::Chunk)?;
                        self.pending.clear();
                        self.state = match size {
                            0 => State::Trailer,
                            size => State::ChunkData(size),
                        };
                    }
                    rest
                }
                State::Trailer => {
                    let (rest, is_complete) = self.line(input, MAX_HEAD)?;
                    if is_complete {
                        self.trailer += self.pending.len();
                        let is_last = matches!(self.pending.as_slice(), b"\r\n" | b"\n");
                        self.pending.clear();
                        if self.trailer > MAX_HEAD {
                            return Err(Http1Error::HeadTooLong);
                        }
                        if is_last {
                            self.state = State::Done;
                        }
                    }
                    rest
                }
                State::Done => {
                    // Unexpected bytes: they would be taken for the next response.
                    self.keep_alive = false;
                    return Ok(());
                }
            };
        }
        let overhead = self.wire.saturating_sub(body.len());
        if overhead > body.len().saturating_add(MAX_OVERHEAD) {
            return Err(Http1Error::Overhead);
        }
        Ok(())
    }

    /// Handles the end of the connection. Returns whether the response is complete.
    pub(crate) fn end(&mut self) -> bool {
        self.keep_alive = false;
        if self.state == State::UntilClose {
            self.state = State::Done;
        }
        self.is_done()
    }

    fn head<'i>(&mut self, input: &'i [u8]) -> Result<&'i [u8], Http1Error> {
        let previous = self.pending.len();
        let room = MAX_HEAD.saturating_sub(previous);
        let part = input.get(..room).unwrap_or(input);
        // A head nearly always arrives in one piece.
        let parsed = if previous == 0 {
            parse_head(part)?
        } else {
            self.pending.extend_from_slice(part);
            parse_head(&self.pending)?
        };
        let Some(head) = parsed else {
            if previous == 0 {
                self.pending.extend_from_slice(part);
            }
            return if self.pending.len() >= MAX_HEAD {
                Err(Http1Error::HeadTooLong)
            } else {
                Ok(&[])
            };
        };
        let rest = input.get(head.len.saturating_sub(previous)..);
        self.pending.clear();
        // Interim responses precede the final one.
        if !(100..200).contains(&head.status) {
            self.status = head.status;
            self.keep_alive = head.keep_alive;
            self.stated = head.stated;
            self.is_gzip = head.is_gzip;
            self.state = head.next;
        } else if head.status == 101 {
            return Err(Http1Error::Head);
        } else {
            self.interim += 1;
            if self.interim > MAX_INTERIM {
                return Err(Http1Error::Interim);
            }
        }
        Ok(rest.unwrap_or_default())
    }

    /// Appends up to `left` bytes to the body and returns the rest of the input.
    fn take<'i>(
        &self,
        left: u64,
        input: &'i [u8],
        body: &mut Vec<u8>,
    ) -> Result<&'i [u8], Http1Error> {
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
        let (part, rest) = input.split_at(count);
        // The beginning of a body that is too long is kept for error messages.
        let room = self.limit.saturating_sub(body.len());
        body.extend_from_slice(part.get(..room).unwrap_or(part));
        if part.len() > room {
            return Err(Http1Error::BodyTooLong);
        }
        Ok(rest)
    }

    /// Moves the input up to the end of the line to `pending`.
    fn line<'i>(&mut self, input: &'i [u8], limit: usize) -> Result<(&'i [u8], bool), Http1Error> {
        let end = input.iter().position(|byte| *byte == b'\n');
        let count = end.map_or(input.len(), |end| end + 1);
        let (part, rest) = input.split_at(count);
        if self.pending.len() + part.len() > limit {
            return Err(Http1Error::Chunk);
        }
        self.pending.extend_from_slice(part);
        Ok((rest, end.is_some()))
    }
}

fn after(left: u64, taken: usize, more: impl Fn(u64) -> State, done: State) -> State {
    match left.saturating_sub(u64::try_from(taken).unwrap_or(u64::MAX)) {
        0 => done,
        left => more(left),
    }
}

fn parse_head(bytes: &[u8]) -> Result<Option<Head>, Http1Error> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let len = match response.parse(bytes) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(Http1Error::Head),
    };
    let status = response.code.ok_or(Http1Error::Head)?;
    let mut keep_alive = response.version == Some(1);
    let mut length: Option<u64> = None;
    let (mut is_chunked, mut is_gzip) = (false, false);
    for header in response.headers.iter() {
        let value = str::from_utf8(header.value).unwrap_or_default().trim();
        if header.name.eq_ignore_ascii_case("content-length") {
            let stated = digits(value).ok_or(Http1Error::Length)?;
            if length.is_some_and(|known| known != stated) {
                return Err(Http1Error::Length);
            }
            length = Some(stated);
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            // No other encoding was requested, and the end of such a body would be unknown.
            if !value.eq_ignore_ascii_case("chunked") || is_chunked {
                return Err(Http1Error::Length);
            }
            is_chunked = true;
        } else if header.name.eq_ignore_ascii_case("content-encoding") {
            match value {
                "identity" => {}
                value if value.eq_ignore_ascii_case("gzip") && !is_gzip => is_gzip = true,
                _ => return Err(Http1Error::Encoding),
            }
        } else if header.name.eq_ignore_ascii_case("connection") {
            for option in value.split(',').map(str::trim) {
                if option.eq_ignore_ascii_case("close") {
                    keep_alive = false;
                } else if option.eq_ignore_ascii_case("keep-alive") && response.version == Some(0) {
                    keep_alive = true;
                }
            }
        }
    }
    let next = match (is_chunked, length) {
        _ if matches!(status, 204 | 304) => State::Done,
        // Two lengths enable request smuggling.
        (true, Some(_)) => return Err(Http1Error::Length),
        (true, None) => State::ChunkSize,
        (false, Some(0)) => State::Done,
        (false, Some(length)) => State::Body(length),
        (false, None) => State::UntilClose,
    };
    Ok(Some(Head {
        len,
        status,
        keep_alive,
        stated: length,
        is_gzip,
        next,
    }))
}

fn digits(text: &str) -> Option<u64> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
}

/// Parses the size of a chunk. Extensions after a semicolon are ignored.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let line = str::from_utf8(line).ok()?.trim_end_matches(['\n', '\r']);
    let size = line.split(';').next()?.trim_end_matches([' ', '\t']);
    (!size.is_empty() && size.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .then(|| u64::from_str_radix(size, 16).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    struct Read {
        status: u16,
        body: String,
        reuse: bool,
    }

    /// Reads a response in pieces of a size.
    fn read(response: &[u8], piece: usize, limit: usize) -> Result<Option<Read>, Http1Error> {
        let (mut reader, mut body) = (ResponseReader::new(), Vec::new());
        reader.start(limit);
        for part in response.chunks(piece.max(1)) {
            reader.feed(part, &mut body)?;
        }
        let reuse = reader.is_reusable();
        Ok(reader.end().then(|| Read {
            status: reader.status(),
            body: String::from_utf8_lossy(&body).into_owned(),
            reuse,
        }))
    }

    #[test]
    fn responses_are_read_however_they_are_split() {
        let cases: [(&str, &str, bool); 7] = [
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
                "hello",
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nConnection: close\r\n\r\nhello",
                "hello",
                false,
            ),
            (
                "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
                "hello",
                false,
            ),
            ("HTTP/1.1 200 OK\r\n\r\nhello", "hello", false),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n",
                "hello",
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n005\r\nhello\r\n0\r\nA: b\r\n\r\n",
                "hello",
                true,
            ),
            (
                "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
                "hello",
                true,
            ),
        ];
        for (response, body, reuse) in cases {
            for piece in [1, 2, 3, 7, 1_000] {
                let read = read(response.as_bytes(), piece, 100).unwrap().unwrap();
                assert_eq!(
                    (read.status, read.body.as_str(), read.reuse),
                    (200, body, reuse),
                    "{response}"
                );
            }
        }
    }

    #[test]
    fn an_ambiguous_or_truncated_response_is_never_complete() {
        for bad in [
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n",
            "HTTP/1.1 101 Switching\r\n\r\n",
            "SSH-2.0-OpenSSH\r\n",
        ] {
            assert!(read(bad.as_bytes(), 3, 100).is_err(), "{bad}");
        }
        for short in [
            "",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        ] {
            assert!(read(short.as_bytes(), 3, 100).unwrap().is_none(), "{short}");
        }
    }

    #[test]
    fn heads_bodies_and_trailers_are_bounded() {
        let mut reader = ResponseReader::new();
        let mut body = Vec::new();
        reader.start(10);
        reader.feed(b"HTTP/1.1 200 OK\r\n\r\n", &mut body).unwrap();
        assert_eq!(
            reader.feed(&[b'a'; 50], &mut body),
            Err(Http1Error::BodyTooLong)
        );
        assert_eq!(body.len(), 10);
        let endless = [b"HTTP/1.1 200 OK\r\nA: ".as_slice(), &vec![b'a'; 40_000]].concat();
        assert_eq!(
            read(&endless, 1_000, 10).err(),
            Some(Http1Error::HeadTooLong)
        );
        let trailers = "A: b\r\n".repeat(4_000);
        let trailers =
            format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n{trailers}");
        assert!(read(trailers.as_bytes(), 1_000, 10).is_err());
        let chunks = "1;x=y\r\na\r\n".repeat(1_000);
        let small =
            format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n");
        assert_eq!(
            read(small.as_bytes(), 1_000, 1_000)
                .unwrap()
                .unwrap()
                .body
                .len(),
            1_000
        );
        // A connection with unexpected bytes is not reused.
        let two = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\n";
        assert!(!read(two.as_bytes(), 1_000, 10).unwrap().unwrap().reuse);
    }

    /// The bytes of a response were once limited by its timeout alone.
    #[test]
    fn interim_responses_and_framing_are_bounded() {
        let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(9);
        for piece in [1, 10_000] {
            let read = read(interim.as_bytes(), piece, 10);
            assert_eq!(read.err(), Some(Http1Error::Interim));
        }
        let (mut reader, mut body) = (ResponseReader::new(), Vec::new());
        let limit = 32 << 20;
        reader.start(limit);
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        reader.feed(head, &mut body).unwrap();
        let chunk = format!("1;x={}\r\na\r\n", "y".repeat(245));
        let mut fed = 0;
        let error = loop {
            fed += chunk.len();
            if let Err(error) = reader.feed(chunk.as_bytes(), &mut body) {
                break error;
            }
        };
        assert_eq!(error, Http1Error::Overhead);
        assert!(fed < 100_000, "{fed}");
    }

    #[test]
    fn only_gzip_is_accepted_as_an_encoding() {
        let head = |encoding: &str| {
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nContent-Encoding: {encoding}\r\n\r\n"
            );
            let mut reader = ResponseReader::new();
            reader.start(10);
            reader.feed(head.as_bytes(), &mut Vec::new())?;
            Ok((reader.is_gzip(), reader.stated_length()))
        };
        assert_eq!(head("GZIP"), Ok((true, Some(9))));
        assert_eq!(head("identity"), Ok((false, Some(9))));
        for other in ["br", "gzip, gzip", "zstd"] {
            assert_eq!(head(other), Err(Http1Error::Encoding), "{other}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn splits_change_nothing(
            response in prop::collection::vec(prop::sample::select(vec![
                "HTTP/1.1 200 OK\r\n", "Content-Length: 3\r\n", "Transfer-Encoding: chunked\r\n", "\r\n", "3\r\n", "abc",
                "0\r\n", "\n", "x", "HTTP/1.1 100 C\r\n\r\n",
            ]), 0..12),
            piece in 1_usize..9,
        ) {
            let response = response.concat();
            let whole = read(response.as_bytes(), usize::MAX, 20);
            let cut = read(response.as_bytes(), piece, 20);
            let view = |read: Result<Option<Read>, Http1Error>| {
                read.map(|read| read.map(|read| (read.status, read.body, read.reuse)))
            };
            prop_assert_eq!(view(whole).ok(), view(cut).ok());
        }
    }
}
