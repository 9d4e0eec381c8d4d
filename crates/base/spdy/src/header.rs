//! Header blocks: name and value pairs, compressed in one zlib stream for the life of a connection.

use bytes::{Buf, BufMut};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use crate::dictionary::{ADLER, DICTIONARY};
use crate::error::SpdyError;

/// Names that belong to the connection, which a block must not have.
const REFUSED: [&str; 5] = [
    "connection",
    "host",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
];
/// The window of our compressor, as a power of two: the dictionary and a few headers.
const WINDOW_BITS: u8 = 11;

/// Headers of a stream, in the order of the block. Names are lower-case.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Headers(Vec<(String, String)>);

/// Compresses header blocks.
pub struct HeaderEncoder(Option<Compress>);

/// Decompresses header blocks.
#[derive(Debug)]
pub struct HeaderDecoder {
    zlib: Option<Decompress>,
    max_headers: usize,
    max_bytes: usize,
}

impl Headers {
    pub(crate) const EMPTY: Self = Self(Vec::new());

    /// Adds a header. Values of one name are separated by NUL.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.0.push((name.to_ascii_lowercase(), value.to_owned()));
        self
    }

    /// Returns the first value of a header.
    pub fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(own, _)| own == name)?;
        value.split('\0').next()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    fn parse(mut block: &[u8], max_headers: usize) -> Result<Self, SpdyError> {
        let count = block
            .try_get_u32()
            .map_err(|_| SpdyError::BadHeaders("the count is missing"))?;
        if usize::try_from(count).map_or(true, |count| count > max_headers) {
            return Err(SpdyError::TooManyHeaders {
                count,
                limit: max_headers,
            });
        }
        let mut headers = Self::default();
        for _ in 0..count {
            let (name, value) = (string(&mut block)?, string(&mut block)?);
            headers.check(&name)?;
            headers.0.push((name, value));
        }
        if block.is_empty() {
            Ok(headers)
        } else {
            Err(SpdyError::BadHeaders("bytes after the last header"))
        }
    }

    fn check(&self, name: &str) -> Result<(), SpdyError> {
        let fault = if name.is_empty() {
            "a name is empty"
        } else if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            "a name is not in lower case"
        } else if REFUSED.contains(&name) {
            "a header belongs to the connection"
        } else if self.0.iter().any(|(own, _)| own == name) {
            "a name occurs twice"
        } else {
            return Ok(());
        };
        Err(SpdyError::BadHeaders(fault))
    }
}

impl HeaderEncoder {
    /// Creates the encoder of a connection. It allocates with its first block.
    pub const fn new() -> Self {
        Self(None)
    }

    /// Compresses a block. Blocks must be sent in the order in which they are compressed.
    pub fn encode(&mut self, headers: &Headers) -> Result<Vec<u8>, SpdyError> {
        let mut plain = Vec::new();
        put_length(&mut plain, headers.0.len())?;
        for (name, value) in &headers.0 {
            for text in [name, value] {
                put_length(&mut plain, text.len())?;
                plain.put_slice(text.as_bytes());
            }
        }
        let zlib = if let Some(zlib) = &mut self.0 {
            zlib
        } else {
            let mut zlib = Compress::new_with_window_bits(Compression::fast(), true, WINDOW_BITS);
            zlib.set_dictionary(&DICTIONARY)
                .map_err(|_| SpdyError::Zlib)?;
            self.0.insert(zlib)
        };
        let mut out = Vec::with_capacity(plain.len() / 2 + 64);
        let mut rest = plain.as_slice();
        loop {
            let before = zlib.total_in();
            zlib.compress_vec(rest, &mut out, FlushCompress::Sync)
                .map_err(|_| SpdyError::Zlib)?;
            let consumed = usize::try_from(zlib.total_in() - before).unwrap_or(usize::MAX);
            rest = rest.get(consumed..).unwrap_or_default();
            // All is flushed once the output has room left.
            if rest.is_empty() && out.len() < out.capacity() {
                return Ok(out);
            }
            out.reserve(256);
        }
    }
}

impl Default for HeaderEncoder {
    fn default() -> Self {
        Self::new()
    }
}

impl HeaderDecoder {
    /// Creates the decoder of a connection, which refuses blocks of more headers and of more bytes,
    /// inflated.
    pub const fn new(max_headers: usize, max_bytes: usize) -> Self {
        Self {
            zlib: None,
            max_headers,
            max_bytes,
        }
    }

    /// Decompresses the block of a frame. After an error the stream cannot be followed any more.
    pub fn decode(&mut self, block: &[u8]) -> Result<Headers, SpdyError> {
        let plain = self.inflate(block)?;
        Headers::parse(&plain, self.max_headers)
    }

    fn inflate(&mut self, mut block: &[u8]) -> Result<Vec<u8>, SpdyError> {
        let zlib = self.zlib.get_or_insert_with(|| Decompress::new(true));
        let mut out = Vec::new();
        let mut chunk = [0; 1024];
        loop {
            let (total_in, total_out) = (zlib.total_in(), zlib.total_out());
            let status = match zlib.decompress(block, &mut chunk, FlushDecompress::Sync) {
                Ok(status) => status,
                Err(error) if error.needs_dictionary() == Some(ADLER) => {
                    zlib.set_dictionary(&DICTIONARY)
                        .map_err(|_| SpdyError::Zlib)?;
                    Status::Ok
                }
                Err(_) => return Err(SpdyError::Zlib),
            };
            let consumed = usize::try_from(zlib.total_in() - total_in).unwrap_or(usize::MAX);
            let produced = usize::try_from(zlib.total_out() - total_out).unwrap_or(usize::MAX);
            block = block.get(consumed..).unwrap_or_default();
            out.extend_from_slice(chunk.get(..produced).unwrap_or(&chunk));
            if out.len() > self.max_bytes {
                return Err(SpdyError::HeadersTooLong(self.max_bytes));
            }
            match status {
                // The stream lasts as long as the connection.
                Status::StreamEnd => return Err(SpdyError::Zlib),
                _ if block.is_empty() && produced < chunk.len() => return Ok(out),
                _ if consumed == 0 && produced == 0 => return Err(SpdyError::Zlib),
                Status::Ok | Status::BufError => {}
            }
        }
    }
}

impl std::fmt::Debug for HeaderEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeaderEncoder").finish_non_exhaustive()
    }
}

fn string(block: &mut &[u8]) -> Result<String, SpdyError> {
    let short = |_| SpdyError::BadHeaders("a string is incomplete");
    let length = block.try_get_u32().map_err(short)?;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let (text, rest) = block
        .split_at_checked(length)
        .ok_or(SpdyError::BadHeaders("a string is incomplete"))?;
    *block = rest;
    let text = std::str::from_utf8(text).map_err(|_| SpdyError::BadHeaders("not UTF-8"))?;
    Ok(text.to_owned())
}

fn put_length(out: &mut Vec<u8>, length: usize) -> Result<(), SpdyError> {
    let length = u32::try_from(length).map_err(|_| SpdyError::BadHeaders("too long"))?;
    out.put_u32(length);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoder() -> HeaderDecoder {
        HeaderDecoder::new(32, 16 << 10)
    }

    #[test]
    fn the_dictionary_has_its_checksum() {
        let (mut a, mut b) = (1_u32, 0_u32);
        for byte in DICTIONARY {
            a = (a + u32::from(byte)) % 65_521;
            b = (b + a) % 65_521;
        }
        assert_eq!(b << 16 | a, ADLER);
    }

    #[test]
    fn a_block_that_go_wrote_is_read() {
        let block = [
            0x78, 0xf9, 0xe3, 0xc6, 0xa7, 0xc2, 0x02, 0xa6, 0x23, 0x46, 0x70, 0x3a, 0x2b, 0x29,
            0x4a, 0x4d, 0xcc, 0x85, 0x16, 0x25, 0xac, 0xa9, 0xa0, 0x80, 0x06, 0x00, 0x00, 0x00,
            0xff, 0xff,
        ];
        let headers = decoder().decode(&block).unwrap();
        assert_eq!(headers, Headers::default().with("streamtype", "error"));
    }

    #[test]
    fn blocks_share_one_context() {
        let (mut encoder, mut decoder) = (HeaderEncoder::new(), decoder());
        let headers = Headers::default()
            .with("streamType", "data")
            .with("requestid", "17\0 18");
        let mut lengths = Vec::new();
        for _ in 0..100 {
            let block = encoder.encode(&headers).unwrap();
            lengths.push(block.len());
            assert_eq!(decoder.decode(&block).unwrap(), headers);
        }
        assert!(lengths[1] < lengths[0], "{lengths:?}");
        assert_eq!(headers.get("requestid"), Some("17"));
        assert_eq!(headers.get("port"), None);
    }

    #[test]
    fn a_bomb_is_cut_at_the_limit() {
        let mut encoder = HeaderEncoder::new();
        let huge = Headers::default().with("a", &"x".repeat(1 << 20));
        let block = encoder.encode(&huge).unwrap();
        assert!(block.len() < 10_000);
        let error = decoder().decode(&block).unwrap_err();
        assert!(
            matches!(error, SpdyError::HeadersTooLong(16_384)),
            "{error}"
        );
    }

    #[test]
    fn too_many_and_bad_headers_are_errors() {
        let encode = |headers: Headers| HeaderEncoder::new().encode(&headers).unwrap();
        let many = (0..33).fold(Headers::default(), |headers, n| {
            headers.with(&n.to_string(), "")
        });
        let error = decoder().decode(&encode(many)).unwrap_err();
        assert!(matches!(error, SpdyError::TooManyHeaders { count: 33, .. }));
        let twice = Headers::default().with("a", "1").with("a", "2");
        let upper = Headers(vec![("A".to_owned(), String::new())]);
        let refused = Headers::default().with("host", "x");
        for headers in [twice, upper, refused, Headers::default().with("", "x")] {
            let error = decoder().decode(&encode(headers)).unwrap_err();
            assert!(matches!(error, SpdyError::BadHeaders(_)), "{error}");
        }
        for block in [&b""[..], b"x", &[0x78, 0x9c, 0x01]] {
            assert!(decoder().decode(block).is_err(), "{block:?}");
        }
    }
}
