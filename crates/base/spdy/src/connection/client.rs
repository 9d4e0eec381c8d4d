//! The side that opens streams, for tests of servers.

use std::future::Future;
use std::io;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::sync::oneshot;

use super::{Config, Connection, Reader};
use crate::error::SpdyError;
use crate::frame;
use crate::header::Headers;
use crate::stream::{Stream, StreamState};

/// Streams that were opened.
#[derive(Debug, Default)]
pub(super) struct Client(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    next_id: u32,
    is_lost: bool,
    replies: HashMap<u32, oneshot::Sender<bool>>,
    /// Pipes that the reader has not taken yet.
    pipes: HashMap<u32, (Arc<StreamState>, DuplexStream)>,
}

impl Client {
    pub(super) fn replied(&self, id: u32, is_accepted: bool) {
        if let Some(reply) = self.0.lock().replies.remove(&id) {
            let _ = reply.send(is_accepted);
        }
    }

    pub(super) fn lost(&self) {
        let mut state = self.0.lock();
        state.is_lost = true;
        state.replies.clear();
        state.pipes.clear();
    }
}

impl Connection {
    /// Connects as a client.
    pub fn client<S>(
        io: S,
        config: Config,
    ) -> (
        Self,
        impl Future<Output = Result<(), SpdyError>> + Send + 'static,
    )
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        Self::new(io, config, true)
    }

    /// Opens a stream, and waits for the reply.
    pub async fn open(&self, headers: Headers) -> io::Result<Stream> {
        let (stream, reply) = self.open_without_reply(headers)?;
        match reply.await {
            Ok(true) => Ok(stream),
            Ok(false) => Err(io::ErrorKind::ConnectionRefused.into()),
            Err(_) => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }

    /// Opens a stream; the receiver learns of the reply.
    pub fn open_without_reply(
        &self,
        headers: Headers,
    ) -> io::Result<(Stream, oneshot::Receiver<bool>)> {
        let shared = &self.shared;
        let (own, pipe) = tokio::io::duplex(64 << 10);
        let (replied, reply) = oneshot::channel();
        let mut client = shared.client.0.lock();
        if client.is_lost {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let id = 2 * client.next_id + 1;
        client.next_id += 1;
        let state = StreamState::new(id);
        shared.streams.lock().insert(id, Arc::clone(&state));
        client.pipes.insert(id, (Arc::clone(&state), own));
        client.replies.insert(id, replied);
        shared.push_block(&headers, |out, block| {
            frame::put_syn_stream(out, id, false, block);
        });
        drop(client);
        Ok((Stream::new(&state, headers, pipe, shared), reply))
    }
}

impl Reader {
    /// Takes the pipe of a stream that this side has opened.
    pub(super) fn adopt(&mut self, id: u32) {
        if let Some(pipe) = self.shared.client.0.lock().pipes.remove(&id) {
            self.pipes.insert(id, pipe);
        }
    }
}
