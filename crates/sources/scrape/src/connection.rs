//! A connection to a kubelet: TCP, and TLS unless it is plain HTTP.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use kubevitals_tls::{
    ClientTls, HandshakeFailure, Progress, ReceiveBuffer, UnbufferedClient, Verified,
};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::buffers::ResponseBuffers;
use crate::credentials::Bearer;
use crate::deadline::Deadline;
use crate::error::{ScrapeError, excerpt};
use crate::proxy::KubeletProxy;
use crate::slots::ConnectionSlot;

const USER_AGENT: &str = concat!("kubevitals/", env!("CARGO_PKG_VERSION"));
const ACCEPT: &str = "text/plain;version=0.0.4, application/json;q=0.5, */*;q=0.1";
/// The messages of a server in a handshake nearly always fit.
const HANDSHAKE_BUFFER: usize = 4 << 10;
/// A handshake returns its permit once a peer stays silent for longer than this. Peers that accept
/// connections and send nothing then delay nobody.
const MAX_SILENCE: Duration = Duration::from_millis(250);
/// Maximum number of addresses of one host name that are dialled.
const MAX_RESOLVED: usize = 4;

/// An open connection. Between requests it holds no buffer, neither here nor in TLS.
pub(crate) struct Connection {
    tcp: TcpStream,
    /// `None` for plain HTTP.
    tls: Option<Box<UnbufferedClient>>,
    /// TLS messages to send with the next request, such as the reply to a key update.
    pending: Vec<u8>,
    verified: Option<Verified>,
    slot: ConnectionSlot,
    /// The address of the peer as `host:port`.
    pub(crate) address: String,
    /// The index of the address among those of the node.
    pub(crate) index: usize,
    /// Whether it has carried a response before: the peer may then have closed it meanwhile.
    pub(crate) is_used: bool,
}

/// A permit to begin a handshake, which takes some tens of KiB, of which an allocator gives little
/// back.
struct HandshakePermit<'a>(Option<SemaphorePermit<'a>>);

/// A connection that has just been opened.
pub(crate) struct Opened {
    tcp: TcpStream,
    tls: Option<Box<UnbufferedClient>>,
    verified: Option<Verified>,
    address: String,
    index: usize,
}

/// The outcome of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    /// A part of the response was read.
    Data,
    /// No part of the response: a TLS message, or an incomplete record.
    NoData,
    /// The peer has closed the connection, with `close_notify` if it is TLS.
    Closed,
}

impl Connection {
    /// Dials a host. Without `tls` it is plain HTTP.
    pub(crate) async fn open(
        host: &str,
        port: u16,
        index: usize,
        tls: Option<&ClientTls>,
        handshakes: &Semaphore,
        deadline: &Deadline<'_>,
        proxy: Option<&KubeletProxy>,
    ) -> Result<Opened, ScrapeError> {
        let dialled = async {
            match proxy.filter(|proxy| proxy.is_for(host, port)) {
                None => dial(host, port).await,
                Some(proxy) => dial_through(proxy, host_port(host, port)).await,
            }
        };
        let (tcp, address, client) = if let Some(tls) = tls {
            let name = server_name(host)?;
            // Before the connection: a peer may close one that waits for long.
            let mut permit = HandshakePermit::acquire(handshakes, deadline).await;
            let (mut tcp, address) = permit.wait_for_peer(dialled).await?;
            let client = handshake(&mut tcp, tls, name, &mut permit).await;
            let client = client.map_err(|error| connect_error(&address, error))?;
            (tcp, address, Some(client))
        } else {
            let (tcp, address) = dialled.await?;
            (tcp, address, None)
        };
        // A request is one small write that should leave at once.
        tcp.set_nodelay(true).ok();
        Ok(Opened {
            tcp,
            tls: client.map(Box::new),
            verified: tls.and_then(ClientTls::verified),
            address,
            index,
        })
    }

    pub(crate) fn new(opened: Opened, slot: ConnectionSlot) -> Self {
        let Opened {
            tcp,
            tls,
            verified,
            address,
            index,
        } = opened;
        Self {
            tcp,
            tls,
            pending: Vec::new(),
            verified,
            slot,
            address,
            index,
            is_used: false,
        }
    }

    /// Returns whether it may stay open after the scrape.
    pub(crate) fn is_kept(&self) -> bool {
        self.slot.is_kept()
    }

    /// Returns the proof that the identity of the peer was verified.
    pub(crate) fn verified(&self) -> Option<Verified> {
        self.verified
    }

    /// Sends a GET request. The caller has made sure that the peer may receive the token.
    pub(crate) async fn send(
        &mut self,
        path: &str,
        token: Option<&Bearer>,
        accepts_gzip: bool,
    ) -> io::Result<()> {
        let mut request = String::with_capacity(256);
        for part in [
            "GET ",
            path,
            " HTTP/1.1\r\nHost: ",
            &self.address,
            "\r\nUser-Agent: ",
            USER_AGENT,
            "\r\nAccept: ",
            ACCEPT,
            "\r\n",
        ] {
            request.push_str(part);
        }
        if let Some(token) = token {
            for part in ["Authorization: Bearer ", token.expose(), "\r\n"] {
                request.push_str(part);
            }
        }
        if accepts_gzip {
            request.push_str("Accept-Encoding: gzip\r\n");
        }
        request.push_str("\r\n");
        let Some(tls) = &mut self.tls else {
            return self.tcp.write_all(request.as_bytes()).await;
        };
        let mut records = std::mem::take(&mut self.pending);
        tls.encrypt(request.as_bytes(), &mut records)
            .map_err(invalid_data)?;
        self.tcp.write_all(&records).await
    }

    /// Waits until bytes have arrived. This needs no buffer, so that a peer which never responds
    /// occupies none.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        self.tcp.readable().await
    }

    /// Reads what has arrived, without waiting for more.
    pub(crate) fn try_read(&mut self, response: &mut ResponseBuffers) -> io::Result<ReadOutcome> {
        match self.poll_read(response) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => Ok(ReadOutcome::NoData),
        }
    }

    /// Waits for bytes and reads them.
    pub(crate) async fn read(&mut self, response: &mut ResponseBuffers) -> io::Result<ReadOutcome> {
        let count = self.tcp.read(response.received.spare()?).await?;
        self.process(count, response)
    }

    fn poll_read(&mut self, response: &mut ResponseBuffers) -> Poll<io::Result<ReadOutcome>> {
        let mut spare = ReadBuf::new(response.received.spare()?);
        // No task is to be woken: the caller waits in `readable`.
        let mut context = Context::from_waker(Waker::noop());
        ready!(Pin::new(&mut self.tcp).poll_read(&mut context, &mut spare))?;
        let count = spare.filled().len();
        Poll::Ready(self.process(count, response))
    }

    /// Processes `count` bytes that were read into the receive buffer.
    fn process(&mut self, count: usize, response: &mut ResponseBuffers) -> io::Result<ReadOutcome> {
        let ResponseBuffers {
            received,
            body,
            reader,
            error,
            ..
        } = response;
        received.advance(count);
        let mut outcome = ReadOutcome::NoData;
        let mut on_data = |bytes: &[u8]| {
            outcome = ReadOutcome::Data;
            if error.is_none() {
                *error = reader.feed(bytes, body).err();
            }
        };
        let is_closed = if let Some(tls) = &mut self.tls {
            let progress = tls
                .process(received, &mut self.pending, on_data)
                .map_err(invalid_data)?;
            let is_closed = progress == Progress::Closed;
            if count == 0 && !is_closed {
                return Err(unexpected_eof("connection closed without close_notify"));
            }
            is_closed
        } else {
            if count > 0 {
                on_data(received.filled());
                received.clear();
            }
            count == 0
        };
        Ok(match outcome {
            ReadOutcome::NoData if is_closed => ReadOutcome::Closed,
            outcome => outcome,
        })
    }
}

impl<'a> HandshakePermit<'a> {
    async fn acquire(permits: &'a Semaphore, deadline: &Deadline<'_>) -> Self {
        Self(deadline.paused(permits.acquire()).await.ok())
    }

    /// Waits for the peer. If that takes long, the handshake goes on without the permit: it must
    /// not wait behind others that begin.
    async fn wait_for_peer<T>(&mut self, future: impl Future<Output = T>) -> T {
        tokio::pin!(future);
        if let Ok(output) = timeout(MAX_SILENCE, &mut future).await {
            return output;
        }
        self.0 = None;
        future.await
    }
}

/// Performs the TLS handshake on a new connection.
async fn handshake(
    tcp: &mut TcpStream,
    tls: &ClientTls,
    name: ServerName<'static>,
    permit: &mut HandshakePermit<'_>,
) -> io::Result<UnbufferedClient> {
    let mut client = UnbufferedClient::new(tls, name).map_err(invalid_data)?;
    let (mut received, mut output) = (ReceiveBuffer::new(HANDSHAKE_BUFFER), Vec::new());
    loop {
        // Data that a peer sends before any request is no response.
        let progress = client.process(&mut received, &mut output, |_| {});
        let sent = tcp.write_all(&output).await;
        output.clear();
        match progress.map_err(invalid_data)? {
            Progress::Open if received.is_empty() => return sent.map(|()| client),
            Progress::Open | Progress::Handshaking => sent?,
            Progress::Closed => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
        permit.wait_for_peer(tcp.readable()).await?;
        let count = match tcp.try_read(received.spare()?) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            count => count?,
        };
        if count == 0 {
            return Err(unexpected_eof("connection closed during the TLS handshake"));
        }
        received.advance(count);
    }
}

fn server_name(host: &str) -> Result<ServerName<'static>, ScrapeError> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(ServerName::IpAddress(ip.into()));
    }
    ServerName::try_from(host.to_owned())
        .map_err(|error| dns_error(host, io::Error::new(io::ErrorKind::InvalidInput, error)))
}

/// Returns the error of a connection that failed before it carried a response.
pub(crate) fn connect_error(address: &str, error: io::Error) -> ScrapeError {
    let address = address.to_owned();
    if let Some(failure) = HandshakeFailure::from_io(&error) {
        return ScrapeError::Tls { address, failure };
    }
    let is_limit = is_open_file_limit(&error);
    let source = Arc::new(error);
    if is_limit {
        ScrapeError::OpenFiles { address, source }
    } else {
        ScrapeError::Connect { address, source }
    }
}

/// Returns whether the process or the system has no file left to open.
fn is_open_file_limit(error: &io::Error) -> bool {
    /// `EMFILE` and `ENFILE` of Unix.
    const ERRORS: [i32; 2] = [24, 23];
    error
        .raw_os_error()
        .is_some_and(|code| ERRORS.contains(&code))
}

fn dns_error(host: &str, error: io::Error) -> ScrapeError {
    ScrapeError::Dns {
        host: excerpt(host.as_bytes()),
        source: Arc::new(error),
    }
}

pub(crate) fn unexpected_eof(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, reason)
}

/// Wraps an error of TLS as streams report it.
fn invalid_data(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Formats a host and port, an IPv6 address in brackets.
pub(crate) fn host_port(host: &str, port: u16) -> String {
    match host.parse::<IpAddr>() {
        Ok(ip) => SocketAddr::new(ip, port).to_string(),
        Err(_) => format!("{}:{port}", excerpt(host.as_bytes())),
    }
}

/// Connects to a kubelet through a proxy.
async fn dial_through(
    proxy: &KubeletProxy,
    address: String,
) -> Result<(TcpStream, String), ScrapeError> {
    let (mut tcp, _) = dial(&proxy.host, proxy.port).await?;
    match proxy.tunnel(&mut tcp, &address).await {
        Ok(()) => Ok((tcp, address)),
        Err(error) => Err(connect_error(&address, error)),
    }
}

/// Connects to the first address of a host that accepts.
async fn dial(host: &str, port: u16) -> Result<(TcpStream, String), ScrapeError> {
    let address = host_port(host, port);
    if let Ok(ip) = host.parse::<IpAddr>() {
        return match TcpStream::connect((ip, port)).await {
            Ok(tcp) => Ok((tcp, address)),
            Err(error) => Err(connect_error(&address, error)),
        };
    }
    let resolved = tokio::net::lookup_host((host, port)).await;
    let resolved = resolved.map_err(|error| dns_error(host, error))?;
    let mut last = None;
    for resolved in resolved.take(MAX_RESOLVED) {
        match TcpStream::connect(resolved).await {
            Ok(tcp) => return Ok((tcp, address)),
            Err(error) => last = Some(error),
        }
    }
    Err(match last {
        Some(error) => connect_error(&address, error),
        None => dns_error(host, io::Error::other("the name has no address")),
    })
}
