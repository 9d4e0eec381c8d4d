//! Sizes of a terminal: JSON objects back to back.

use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::mpsc;

use crate::provider::TerminalSize;

/// Sizes that wait for the session. When it reads none, only the newest matters.
pub(super) const QUEUED_SIZES: usize = 16;
/// The longest object; those of clients have thirty bytes.
const MAX_OBJECT: usize = 1024;

/// A size, as Go writes it and, since Go ignores case, as others may.
#[derive(Debug, Deserialize)]
struct Size {
    #[serde(rename = "Width", alias = "width")]
    width: u16,
    #[serde(rename = "Height", alias = "height")]
    height: u16,
}

/// Reads sizes until the end of the stream, or of what can be read, and passes them on. A session
/// that does not read its sizes gets the newest one later, and holds up nobody.
pub(super) async fn forward<R: AsyncRead + Unpin>(
    mut stream: R,
    sizes: mpsc::Sender<TerminalSize>,
) {
    let mut buffer = Vec::new();
    let mut chunk = [0; 256];
    let mut newest: Option<TerminalSize> = None;
    loop {
        tokio::select! {
            read = stream.read(&mut chunk) => {
                let Ok(length @ 1..) = read else { break };
                buffer.extend_from_slice(chunk.get(..length).unwrap_or_default());
                let is_valid = take_sizes(&mut buffer, |size| match newest {
                    None => {
                        if let Err(mpsc::error::TrySendError::Full(size)) = sizes.try_send(size) {
                            newest = Some(size);
                        }
                    }
                    Some(_) => newest = Some(size),
                });
                if !is_valid || buffer.len() > MAX_OBJECT {
                    break;
                }
            }
            permit = sizes.reserve(), if newest.is_some() => {
                let Ok(permit) = permit else { break };
                if let Some(size) = newest.take() {
                    permit.send(size);
                }
            }
        }
    }
    if let Some(size) = newest {
        let _ = sizes.send(size).await;
    }
}

/// Takes the complete objects from the buffer. Returns `false` if something else is there.
fn take_sizes(buffer: &mut Vec<u8>, mut take: impl FnMut(TerminalSize)) -> bool {
    let mut objects = serde_json::Deserializer::from_slice(buffer).into_iter::<Size>();
    let mut end = 0;
    let mut is_valid = true;
    loop {
        match objects.next() {
            Some(Ok(Size { width, height })) => take(TerminalSize { width, height }),
            Some(Err(error)) => {
                is_valid = error.is_eof();
                break;
            }
            None => break,
        }
        end = objects.byte_offset();
    }
    buffer.drain(..end);
    is_valid
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    fn size(width: u16, height: u16) -> TerminalSize {
        TerminalSize { width, height }
    }

    async fn forwarded(pieces: &[&[u8]]) -> Vec<TerminalSize> {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        for piece in pieces {
            client.write_all(piece).await.unwrap();
        }
        drop(client);
        let (sender, mut sizes) = mpsc::channel(QUEUED_SIZES);
        let collect = async {
            let mut received = Vec::new();
            while let Some(size) = sizes.recv().await {
                received.push(size);
            }
            received
        };
        tokio::join!(forward(server, sender), collect).1
    }

    #[tokio::test]
    async fn sizes_arrive_in_order_however_they_are_cut() {
        let text = br#"{"Width":80,"Height":24}{"width":1,"height":2} {"Width":132,"Height":43}"#;
        let expected = [size(80, 24), size(1, 2), size(132, 43)];
        for cut in 0..text.len() {
            let (first, second) = text.split_at(cut);
            assert_eq!(forwarded(&[first, second]).await, expected, "{cut}");
        }
    }

    #[tokio::test]
    async fn garbage_ends_the_sizes() {
        let good: &[u8] = br#"{"Width":80,"Height":24}"#;
        for bad in [
            &b"x"[..],
            br#"{"Width":70000,"Height":1}"#,
            b"[]",
            &[b' '; 2000],
        ] {
            assert_eq!(forwarded(&[good, bad, good]).await.len(), 1, "{bad:?}");
        }
    }

    #[tokio::test]
    async fn a_session_that_reads_late_sees_the_newest_size_last() {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        let (sender, mut sizes) = mpsc::channel(QUEUED_SIZES);
        let task = tokio::spawn(forward(server, sender));
        for width in 0..500 {
            let object = format!(r#"{{"Width":{width},"Height":1}}"#);
            client.write_all(object.as_bytes()).await.unwrap();
        }
        // All is read although nothing is taken: the pipe has room again.
        client.write_all(&vec![b' '; 1 << 16]).await.unwrap();
        drop(client);
        let mut received = Vec::new();
        while let Some(size) = sizes.recv().await {
            received.push(size.width);
        }
        task.await.unwrap();
        assert!(received.len() <= QUEUED_SIZES + 2);
        assert!(received.is_sorted() && received.last() == Some(&499));
    }

    proptest! {
        #[test]
        fn no_bytes_are_a_problem(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            take_sizes(&mut bytes, |_| {});
        }
    }
}
