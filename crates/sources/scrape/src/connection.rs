//! One connection to a kubelet, and requests on it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use kubevitals_tls::{ClientTls, HandshakeFailure, Verified};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::credentials::Bearer;
use crate::failure::{Failure, excerpt};
use crate::http1::{Http1Error, Reader};

const USER_AGENT: &str = concat!("kubevitals/", env!("CARGO_PKG_VERSION"));
/// As much as a TLS record holds.
const PIECE: usize = 16 << 10;
/// As much of an answer that is no success as is of interest.
const MOST_COMPLAINT: usize = 4 << 10;

/// An open connection. Between requests it holds no buffer of ours.
pub(crate) struct Connection {
    stream: Stream,
    /// Whether the peer was verified.
    verified: Option<Verified>,
    /// Whom it leads to, as text.
    pub(crate) address: String,
    /// Which of the node's addresses it leads to.
    pub(crate) place: usize,
    /// Whether it has carried an answer before: the peer may then have closed it meanwhile.
    pub(crate) is_used: bool,
}

/// What requests are written from and answers read into. Scrapes that are under way have one each.
pub(crate) struct Buffers {
    piece: Box<[u8]>,
    pub(crate) body: Vec<u8>,
    reader: Reader,
}

/// An answer whose body is in the buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Body,
    /// Whether the connection can carry another request.
    pub(crate) may_be_reused: bool,
}

/// How much of a body there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body {
    /// It is all there.
    Whole,
    /// The connection broke off.
    Cut,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// A connection that had been idle turned out to be closed: another one may do.
    Stale,
    Failure(Failure),
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Buffers {
    pub(crate) fn new() -> Self {
        Self {
            piece: vec![0; PIECE].into(),
            body: Vec::new(),
            reader: Reader::new(),
        }
    }

    /// Gives back what only an unusual answer needed.
    pub(crate) fn trim(&mut self) {
        const USUAL: usize = 512 << 10;
        self.body.clear();
        self.body.shrink_to(USUAL);
    }
}

impl Connection {
    /// Dials a host. `tls` of `None` means plain HTTP.
    pub(crate) async fn open(
        host: &str,
        port: u16,
        place: usize,
        tls: Option<&ClientTls>,
        handshakes: &Semaphore,
    ) -> Result<Self, Failure> {
        let (tcp, address) = dial(host, port).await?;
        // A request is one small write: it should leave at once.
        tcp.set_nodelay(true).ok();
        let Some(tls) = tls else {
            return Ok(Self {
                stream: Stream::Plain(tcp),
                verified: None,
                address,
                place,
                is_used: false,
            });
        };
        let name = match host.parse::<IpAddr>() {
            Ok(ip) => ServerName::IpAddress(ip.into()),
            Err(_) => ServerName::try_from(host.to_owned()).map_err(|error| Failure::Dns {
                host: excerpt(host.as_bytes()),
                detail: error.to_string(),
            })?,
        };
        // A handshake takes 45 KiB for a moment, of which an allocator gives little back.
        let _turn = handshakes.acquire().await;
        let connector = TlsConnector::from(tls.config());
        let stream = connector.connect(name, tcp).await.map_err(|error| {
            let address = address.clone();
            match HandshakeFailure::from_io(&error) {
                Some(failure) => Failure::Tls { address, failure },
                None => Failure::Connect {
                    address,
                    detail: excerpt(error.to_string().as_bytes()),
                },
            }
        })?;
        Ok(Self {
            stream: Stream::Tls(Box::new(stream)),
            verified: tls.verified(),
            address,
            place,
            is_used: false,
        })
    }

    /// The witness that the peer is who it should be.
    pub(crate) fn verified(&self) -> Option<Verified> {
        self.verified
    }

    /// Asks for a path. The token is given by who made sure that the peer may have it.
    pub(crate) async fn ask(
        &mut self,
        path: &str,
        token: Option<&Bearer>,
    ) -> Result<(), RequestError> {
        let sent = self.send(path, token).await;
        sent.map_err(|error| self.broken(&error))
    }

    /// Waits until something has arrived. So long no buffer is needed, neither of ours nor of TLS, and a peer that never
    /// answers costs nobody else one.
    pub(crate) async fn arrival(&self) -> Result<(), RequestError> {
        let arrived = match &self.stream {
            Stream::Plain(tcp) => tcp.readable().await,
            Stream::Tls(tls) => tls.get_ref().0.readable().await,
        };
        arrived.map_err(|error| self.broken(&error))
    }

    /// Takes in what has arrived. `None` if it was nothing of an answer: TLS has things to say of its own.
    pub(crate) fn take_in(&mut self, buffers: &mut Buffers) -> Result<Option<usize>, RequestError> {
        match self.read_now(&mut buffers.piece) {
            Poll::Pending => Ok(None),
            Poll::Ready(Ok(0)) => {
                let error =
                    io::Error::new(io::ErrorKind::UnexpectedEof, "closed without an answer");
                Err(self.broken(&error))
            }
            Poll::Ready(Ok(count)) => {
                self.is_used = true;
                Ok(Some(count))
            }
            Poll::Ready(Err(error)) => Err(self.broken(&error)),
        }
    }

    /// Reads the answer of which so many bytes are taken in, with a body of so many bytes at most.
    pub(crate) async fn answer(
        &mut self,
        mut count: usize,
        path: &str,
        limit: usize,
        buffers: &mut Buffers,
    ) -> Result<Reply, Failure> {
        let Buffers {
            piece,
            body,
            reader,
        } = buffers;
        body.clear();
        reader.start(limit);
        let body = loop {
            let read = piece.get(..count).unwrap_or_default();
            match reader.feed(read, body) {
                Ok(()) if reader.is_done() => break Body::Whole,
                // Not a success: its first words are enough.
                Ok(()) if is_complaint(reader) && body.len() > MOST_COMPLAINT => break Body::Cut,
                Ok(()) => {}
                Err(Http1Error::BodyTooLong) => {
                    return Err(Failure::TooLarge {
                        address: self.address.clone(),
                        path: path.to_owned(),
                        limit,
                    });
                }
                Err(error) => return Err(self.unreadable(&error.to_string())),
            }
            // Peers that close without saying so are common; whether the body is whole is known otherwise.
            count = self.stream.read(piece).await.unwrap_or_default();
            if count == 0 {
                match (reader.has_head(), reader.end()) {
                    (false, _) => return Err(self.unreadable("it breaks off within the head")),
                    (true, true) => break Body::Whole,
                    (true, false) => break Body::Cut,
                }
            }
        };
        Ok(Reply {
            status: reader.status(),
            body,
            may_be_reused: reader.may_be_reused(),
        })
    }

    /// Whether the peer is silent, as it should be between requests.
    ///
    /// To look is also what makes rustls give back the buffer of the last record, of 16 KiB, and keep one of 4 KiB: it
    /// shrinks when it is next read into.
    pub(crate) fn is_idle(&mut self) -> bool {
        self.read_now(&mut [0]).is_pending()
    }

    fn read_now(&mut self, piece: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(piece);
        // Nobody is to be woken: who waits does so by `arrival`.
        let mut context = Context::from_waker(Waker::noop());
        let read = Pin::new(&mut self.stream).poll_read(&mut context, &mut buffer);
        read.map_ok(|()| buffer.filled().len())
    }

    fn unreadable(&self, detail: &str) -> Failure {
        Failure::Protocol {
            address: self.address.clone(),
            detail: detail.to_owned(),
        }
    }

    async fn send(&mut self, path: &str, token: Option<&Bearer>) -> io::Result<()> {
        let accept = "text/plain;version=0.0.4, application/json;q=0.5, */*;q=0.1";
        let mut request = String::with_capacity(256);
        for part in [
            "GET ",
            path,
            " HTTP/1.1\r\nHost: ",
            &self.address,
            "\r\nUser-Agent: ",
            USER_AGENT,
            "\r\nAccept: ",
            accept,
            "\r\n",
        ] {
            request.push_str(part);
        }
        if let Some(token) = token {
            for part in ["Authorization: Bearer ", token.expose(), "\r\n"] {
                request.push_str(part);
            }
        }
        request.push_str("\r\n");
        self.stream.write_all(request.as_bytes()).await?;
        self.stream.flush().await
    }

    fn broken(&self, error: &io::Error) -> RequestError {
        if self.is_used {
            return RequestError::Stale;
        }
        let address = self.address.clone();
        // In TLS 1.3 a client learns only now that its certificate was refused.
        RequestError::Failure(match HandshakeFailure::from_io(error) {
            Some(failure) => Failure::Tls { address, failure },
            None => Failure::Connect {
                address,
                detail: excerpt(error.to_string().as_bytes()),
            },
        })
    }
}

fn is_complaint(reader: &Reader) -> bool {
    reader.has_head() && reader.status() != 200
}

/// Connects to the first address of a host that answers.
async fn dial(host: &str, port: u16) -> Result<(TcpStream, String), Failure> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        let address = SocketAddr::new(ip, port);
        let tcp = TcpStream::connect(address).await;
        return match tcp {
            Ok(tcp) => Ok((tcp, address.to_string())),
            Err(error) => Err(Failure::Connect {
                address: address.to_string(),
                detail: error.to_string(),
            }),
        };
    }
    let failed = |detail: String| Failure::Dns {
        host: excerpt(host.as_bytes()),
        detail,
    };
    let found = tokio::net::lookup_host((host, port)).await;
    let found = found.map_err(|error| failed(error.to_string()))?;
    let mut last = None;
    // A name may stand for many; the node's own are few.
    for address in found.take(4) {
        match TcpStream::connect(address).await {
            Ok(tcp) => return Ok((tcp, format!("{host}:{port}"))),
            Err(error) => last = Some(error),
        }
    }
    Err(match last {
        Some(error) => Failure::Connect {
            address: format!("{}:{port}", excerpt(host.as_bytes())),
            detail: error.to_string(),
        },
        None => failed("it has no address".to_owned()),
    })
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
