//! One query and its answer.

use std::io;

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::UdpSocket;

use super::message::{DecodeError, Message, Question};

/// Why there is no answer.
#[derive(Debug, Error)]
pub(crate) enum QueryError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the answer is malformed: {0}")]
    Malformed(#[from] DecodeError),
    #[error("the answer is for another query")]
    Other,
}

/// Maximum size of a message.
const MAX_MESSAGE: usize = 65_535;

/// Sends a query and waits for its answer. Other datagrams are ignored: they may be late, or
/// forged.
pub(crate) async fn ask_udp(
    socket: &UdpSocket,
    question: &Question,
    is_recursion_desired: bool,
) -> Result<Message, QueryError> {
    let id = fastrand::u16(..);
    socket
        .send(&question.encode(id, is_recursion_desired))
        .await?;
    let mut buffer = vec![0; MAX_MESSAGE];
    loop {
        let length = socket.recv(&mut buffer).await?;
        let datagram = buffer.get(..length).unwrap_or_default();
        // The identifier comes first: what has another one is not worth an error.
        if !datagram.starts_with(&id.to_be_bytes()) {
            continue;
        }
        let message = Message::decode(datagram)?;
        if question.is_answered_by(&message, id) {
            return Ok(message);
        }
    }
}

/// Sends a query over a connection and waits for its answer.
pub(crate) async fn ask_stream(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    question: &Question,
    is_recursion_desired: bool,
) -> Result<Message, QueryError> {
    let id = fastrand::u16(..);
    let query = question.encode(id, is_recursion_desired);
    // Names are at most 255 bytes.
    let length = u16::try_from(query.len()).unwrap_or(u16::MAX);
    let mut framed = length.to_be_bytes().to_vec();
    framed.extend_from_slice(&query);
    stream.write_all(&framed).await?;
    stream.flush().await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await?;
    let message = Message::decode(&answer)?;
    if question.is_answered_by(&message, id) {
        Ok(message)
    } else {
        Err(QueryError::Other)
    }
}
