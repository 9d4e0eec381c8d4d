//! The body of the response: read, decompressed, matched.

use std::io::Read;

use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::header;
use http_body_util::BodyExt as _;

use super::super::hyper_client::hyper_failure;
use super::connection::Exchange;
use super::{Compression, HttpSettings};
use crate::run::Run;
use crate::{Failure, Phase, Reason};

/// A body, or its beginning.
#[derive(Debug, Default, PartialEq, Eq)]
struct Body {
    /// Empty if there is nothing to match it against.
    bytes: Vec<u8>,
    length: u64,
    /// Whether there is more of it.
    is_cut: bool,
}

impl HttpSettings {
    pub(super) async fn judge_body(
        &self,
        run: &mut Run<'_>,
        exchange: Exchange,
    ) -> Result<(), Failure> {
        run.enter(Phase::Transfer);
        let encoding = exchange.head.headers.get(header::CONTENT_ENCODING).cloned();
        let compression = self.compression.filter(|compression| {
            let name = compression.name();
            *compression != Compression::Identity
                && encoding.is_some_and(|encoding| {
                    encoding.as_bytes().eq_ignore_ascii_case(name.as_bytes())
                })
        });
        let has_rules = !self.fail_if_body_matches_regexp.is_empty()
            || !self.fail_if_body_not_matches_regexp.is_empty();
        let limit = match self.body_size_limit {
            0 => Self::DEFAULT_BODY_LIMIT,
            limit if has_rules || compression.is_some() => limit.min(Self::MAX_MATCHED_BODY),
            limit => limit,
        };
        let is_kept = has_rules || compression.is_some();
        // A small body is larger compressed than it is.
        let read_limit = match compression {
            Some(_) => limit.max(Self::DEFAULT_BODY_LIMIT),
            None => limit,
        };
        let mut body = read(run, exchange, read_limit, is_kept).await?;
        if let Some(compression) = compression {
            body = decompressed(&body, compression, limit).map_err(|error| {
                let message = format!("the body cannot be decompressed: {error}");
                run.fail(Reason::BodyMismatch, message)
            })?;
        }
        if !body.is_cut {
            run.facts.http_body_length = Some(body.length);
        } else if self.body_size_limit > 0 {
            let message = format!("the body is larger than {limit} bytes");
            return Err(run.fail(Reason::BodyTooLarge, message));
        }
        self.match_body(run, &body)
    }

    fn match_body(&self, run: &Run<'_>, body: &Body) -> Result<(), Failure> {
        let mut forbidden = self.fail_if_body_matches_regexp.iter();
        if let Some(regexp) = forbidden.find(|regexp| regexp.is_match(&body.bytes)) {
            let message = format!("the body matches {:?}", regexp.as_str());
            return Err(run.fail(Reason::BodyMismatch, message));
        }
        let mut wanted = self.fail_if_body_not_matches_regexp.iter();
        let missing = wanted.find(|regexp| !regexp.is_match(&body.bytes));
        let is_open = missing.is_some() || !self.fail_if_body_matches_regexp.is_empty();
        if body.is_cut && is_open {
            let limit = Self::DEFAULT_BODY_LIMIT;
            let message = format!(
                "the body is larger than the {limit} bytes that are matched; set body_size_limit"
            );
            return Err(run.fail(Reason::BodyTooLarge, message));
        }
        match missing {
            Some(regexp) => {
                let message = format!("the body does not match {:?}", regexp.as_str());
                Err(run.fail(Reason::BodyMismatch, message))
            }
            None => Ok(()),
        }
    }
}

/// Reads a body up to a limit.
async fn read(
    run: &Run<'_>,
    mut exchange: Exchange,
    limit: u64,
    is_kept: bool,
) -> Result<Body, Failure> {
    let mut body = Body::default();
    while let Some(frame) = exchange.body.frame().await {
        let frame = frame.map_err(|error| hyper_failure(run, &error))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let room = limit.saturating_sub(body.length);
        let taken = data.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        let taken = data.slice(..taken);
        body.length = body.length.saturating_add(taken.len() as u64);
        if is_kept {
            body.bytes.extend_from_slice(&taken);
        }
        if taken.len() < data.len() {
            body.is_cut = true;
            break;
        }
    }
    Ok(body)
}

/// Decompresses a body up to a limit. One that was cut is decompressed as far as it goes.
fn decompressed(body: &Body, compression: Compression, limit: u64) -> std::io::Result<Body> {
    let compressed = body.bytes.as_slice();
    // What browsers call deflate has the head of zlib, or none.
    let is_zlib = compressed.first().is_some_and(|first| first & 0xf == 8);
    let decoder: Box<dyn Read + Send> = match compression {
        Compression::Gzip => Box::new(MultiGzDecoder::new(compressed)),
        Compression::Deflate if is_zlib => Box::new(ZlibDecoder::new(compressed)),
        Compression::Deflate => Box::new(DeflateDecoder::new(compressed)),
        Compression::Identity => Box::new(compressed),
    };
    let mut bytes = Vec::new();
    let read = decoder
        .take(limit.saturating_add(1))
        .read_to_end(&mut bytes);
    let is_over = bytes.len() as u64 > limit;
    match read {
        Err(error) if !body.is_cut && !is_over => return Err(error),
        _ => {}
    }
    bytes.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    Ok(Body {
        length: bytes.len() as u64,
        bytes,
        is_cut: body.is_cut || is_over,
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    const TEXT: &[u8] = b"a text that is a text that is long enough to be shorter when compressed";

    fn whole(bytes: Vec<u8>) -> Body {
        Body {
            length: bytes.len() as u64,
            bytes,
            is_cut: false,
        }
    }

    #[test]
    fn bodies_are_decompressed_up_to_the_limit() {
        let level = flate2::Compression::default();
        let mut gzip = GzEncoder::new(Vec::new(), level);
        gzip.write_all(TEXT).unwrap();
        let mut zlib = ZlibEncoder::new(Vec::new(), level);
        zlib.write_all(TEXT).unwrap();
        let mut raw = DeflateEncoder::new(Vec::new(), level);
        raw.write_all(TEXT).unwrap();
        for (compressed, compression) in [
            (gzip.finish().unwrap(), Compression::Gzip),
            (zlib.finish().unwrap(), Compression::Deflate),
            (raw.finish().unwrap(), Compression::Deflate),
        ] {
            let body = whole(compressed.clone());
            let length = TEXT.len() as u64;
            let all = decompressed(&body, compression, length).unwrap();
            assert_eq!(all, whole(TEXT.to_vec()));
            let part = decompressed(&body, compression, 10).unwrap();
            assert_eq!((part.bytes.as_slice(), part.is_cut), (&TEXT[..10], true));
            // What is missing is an error, unless it was left out on purpose.
            let half = compressed[..compressed.len() / 2].to_vec();
            let damaged = whole(half);
            assert!(decompressed(&damaged, compression, length).is_err());
            let cut = Body {
                is_cut: true,
                ..damaged
            };
            let cut = decompressed(&cut, compression, length).unwrap();
            assert!(cut.is_cut && TEXT.starts_with(&cut.bytes));
        }
    }
}
