//! Streaming compression of large responses.

use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::StreamExt as _;
use futures_util::stream::{self, Stream};
use http_body::Body as _;

use crate::body::{Body, BodyError};

/// Smaller responses are not compressed, as in Kubernetes.
pub(crate) const THRESHOLD: usize = 128 * 1024;
/// Bytes that are compressed before the task yields.
const STEP: usize = 64 * 1024;

/// A body whose beginning was read.
pub(crate) enum Peeked {
    /// The whole body.
    Small(Body),
    /// A body with more data to come.
    Large(Body),
}

/// Reads the beginning of a body to see whether it is large.
pub(crate) async fn peek(mut body: Body) -> Result<Peeked, BodyError> {
    let hint = body.size_hint();
    if hint.upper().is_some_and(|size| size <= THRESHOLD as u64) {
        return Ok(Peeked::Small(body));
    }
    if hint.lower() > THRESHOLD as u64 {
        return Ok(Peeked::Large(body));
    }
    let mut pieces = Vec::new();
    let mut size = 0;
    while size <= THRESHOLD {
        match next_piece(&mut body).await {
            Some(piece) => {
                let piece = piece?;
                size += piece.len();
                pieces.push(piece);
            }
            None => return Ok(Peeked::Small(Body::full(joined(pieces, size)))),
        }
    }
    let rest = pieces_of(body);
    let whole = stream::iter(pieces.into_iter().map(Ok)).chain(rest);
    Ok(Peeked::Large(Body::fallible(whole)))
}

/// Compresses a body as it is read.
pub(crate) fn compress(body: Body) -> Body {
    Body::fallible(Gzip {
        body,
        piece: Bytes::new(),
        encoder: Some(GzEncoder::new(
            Vec::with_capacity(STEP),
            Compression::fast(),
        )),
    })
}

/// The data of a body.
pub(crate) fn pieces_of(body: Body) -> impl Stream<Item = Result<Bytes, BodyError>> + Send {
    stream::unfold(body, |mut body| async move {
        let piece = next_piece(&mut body).await?;
        Some((piece, body))
    })
}

struct Gzip {
    body: Body,
    /// Data that is not compressed yet.
    piece: Bytes,
    /// `None` after the end.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl Stream for Gzip {
    type Item = Result<Bytes, BodyError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            let Some(encoder) = &mut this.encoder else {
                return Poll::Ready(None);
            };
            if this.piece.is_empty() {
                match Pin::new(&mut this.body).poll_frame(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Some(Err(error))) => {
                        this.encoder = None;
                        return Poll::Ready(Some(Err(error)));
                    }
                    Poll::Ready(Some(Ok(frame))) => {
                        this.piece = frame.into_data().unwrap_or_default();
                        continue;
                    }
                    Poll::Ready(None) => {
                        let finished = this.encoder.take().map(GzEncoder::finish);
                        return Poll::Ready(
                            finished.map(|end| end.map(Bytes::from).map_err(broken)),
                        );
                    }
                }
            }
            let step = this.piece.len().min(STEP);
            let written = encoder.write_all(this.piece.get(..step).unwrap_or_default());
            this.piece.advance(step);
            if let Err(error) = written {
                this.encoder = None;
                return Poll::Ready(Some(Err(broken(error))));
            }
            if encoder.get_ref().len() >= STEP / 2 {
                let out = std::mem::replace(encoder.get_mut(), Vec::with_capacity(STEP));
                return Poll::Ready(Some(Ok(out.into())));
            }
            if step >= STEP / 2 {
                // Highly compressible data would otherwise be compressed for long before there is
                // anything to write.
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn broken(error: std::io::Error) -> BodyError {
    BodyError::Broken(error.to_string())
}

async fn next_piece(body: &mut Body) -> Option<Result<Bytes, BodyError>> {
    use http_body_util::BodyExt as _;
    let frame = body.frame().await?;
    Some(frame.map(|frame| frame.into_data().unwrap_or_default()))
}

fn joined(mut pieces: Vec<Bytes>, size: usize) -> Bytes {
    if pieces.len() == 1 {
        return pieces.pop().unwrap_or_default();
    }
    let mut whole = Vec::with_capacity(size);
    for piece in pieces {
        whole.extend_from_slice(&piece);
    }
    whole.into()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;

    async fn read(body: Body) -> Vec<u8> {
        let pieces: Vec<_> = pieces_of(body).collect().await;
        pieces
            .into_iter()
            .flat_map(|piece| piece.unwrap().to_vec())
            .collect()
    }

    fn pieces(count: usize, size: usize) -> Body {
        Body::pieces((0..count).map(move |at| {
            Bytes::from(
                (0..size)
                    .map(|byte| u8::try_from((at * 31 + byte * 7) % 251).unwrap())
                    .collect::<Vec<_>>(),
            )
        }))
    }

    #[tokio::test]
    async fn small_bodies_are_returned_unchanged() {
        let Ok(Peeked::Small(body)) = peek(pieces(4, 1000)).await else {
            panic!("not small")
        };
        assert_eq!(body.size_hint().exact(), Some(4000));
        assert_eq!(read(body).await, read(pieces(4, 1000)).await);
    }

    #[tokio::test]
    async fn large_bodies_survive_a_round_trip() {
        for (count, size) in [(200, 1000), (1, 300_000), (3, 131_072)] {
            let Ok(Peeked::Large(body)) = peek(pieces(count, size)).await else {
                panic!("not large")
            };
            let compressed = read(compress(body)).await;
            let mut plain = Vec::new();
            GzDecoder::new(&compressed[..])
                .read_to_end(&mut plain)
                .unwrap();
            assert_eq!(plain, read(pieces(count, size)).await);
            assert!(compressed.len() < plain.len());
        }
    }

    #[test]
    fn compression_yields_after_each_step() {
        let mut read = 0;
        let (produced, counted) = std::sync::mpsc::channel();
        let pieces = (0..20).map(move |_| {
            produced.send(()).unwrap();
            Bytes::from(vec![b'x'; STEP - 1])
        });
        let mut body = compress(Body::pieces(pieces));
        let mut context = Context::from_waker(std::task::Waker::noop());
        while let polled = Pin::new(&mut body).poll_frame(&mut context)
            && !matches!(polled, Poll::Ready(None))
        {
            let now = counted.try_iter().count();
            assert!(now <= 1, "{now} pieces in one poll");
            read += now;
        }
        assert_eq!(read, 20);
    }

    #[tokio::test]
    async fn a_failed_body_has_no_end_marker() {
        let broken = stream::iter([
            Ok(Bytes::from(vec![b'x'; 200_000])),
            Err(BodyError::Broken(String::from("cut"))),
        ]);
        let pieces: Vec<_> = pieces_of(compress(Body::fallible(broken))).collect().await;
        assert!(pieces.last().unwrap().is_err());
    }
}
