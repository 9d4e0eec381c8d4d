//! One connection to a kubelet, and requests on it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use kubevitals_tls::{ClientRecords, ClientTls, HandshakeFailure, Inbox, Progress, Verified};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::credentials::Bearer;
use crate::deadline::Deadline;
use crate::failure::{Failure, excerpt};
use crate::http1::{Http1Error, Reader};

const USER_AGENT: &str = concat!("kubevitals/", env!("CARGO_PKG_VERSION"));
/// The body of a usual node fits, so that one read takes it in.
const USUAL_ANSWER: usize = 64 << 10;
/// What a server says in a handshake nearly always fits.
const USUAL_HANDSHAKE: usize = 4 << 10;
/// As much of an answer that is no success as is of interest.
const MAX_COMPLAINT: usize = 4 << 10;

/// An open connection. Between requests it holds no buffer: neither here nor in TLS.
pub(crate) struct Connection {
    tcp: TcpStream,
    /// `None` of plain HTTP.
    tls: Option<Box<ClientRecords>>,
    /// What TLS has to say of its own, to be sent with the next request: an answer to new keys.
    outbox: Vec<u8>,
    /// Whether the peer was verified.
    verified: Option<Verified>,
    /// Whom it leads to, as text.
    pub(crate) address: String,
    /// Which of the node's addresses it leads to.
    pub(crate) place: usize,
    /// Whether it has carried an answer before: the peer may then have closed it meanwhile.
    pub(crate) is_used: bool,
}

/// What answers are read into. Scrapes that are under way have one each.
pub(crate) struct Buffers {
    inbox: Inbox,
    pub(crate) body: Vec<u8>,
    reader: Reader,
    /// Why the answer cannot be read on.
    trouble: Option<Http1Error>,
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

/// What came of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    /// Something of an answer.
    Answer,
    /// TLS has things to say of its own, or a record is not complete.
    Nothing,
    /// Nothing more will come, and the peer said so where that can be said.
    End,
}

impl Buffers {
    pub(crate) fn new() -> Self {
        Self {
            inbox: Inbox::new(USUAL_ANSWER),
            body: Vec::new(),
            reader: Reader::new(),
            trouble: None,
        }
    }

    /// Makes ready for an answer with a body of so many bytes at most.
    pub(crate) fn start(&mut self, limit: usize) {
        self.inbox.clear();
        self.body.clear();
        self.reader.start(limit);
        self.trouble = None;
    }

    /// Whether all that was received is taken in, so that others may use them as long as no answer
    /// has begun.
    pub(crate) fn are_free(&self) -> bool {
        self.inbox.is_empty()
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
        deadline: &Deadline<'_>,
    ) -> Result<Self, Failure> {
        let (mut tcp, address) = dial(host, port).await?;
        // A request is one small write: it should leave at once.
        tcp.set_nodelay(true).ok();
        let records = match tls {
            None => None,
            Some(tls) => {
                let name = server_name(host)?;
                // A handshake takes some tens of KiB for a moment, of which an allocator gives
                // little back.
                let _turn = deadline.turn(handshakes.acquire()).await;
                let shaken = shake_hands(&mut tcp, tls, name).await;
                Some(shaken.map_err(|error| lost(&address, &error))?)
            }
        };
        Ok(Self {
            tcp,
            tls: records.map(Box::new),
            outbox: Vec::new(),
            verified: tls.and_then(ClientTls::verified),
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

    /// Waits until something has arrived. So long no buffer is needed, and a peer that never
    /// answers costs nobody else one.
    pub(crate) async fn arrival(&self) -> Result<(), RequestError> {
        let arrived = self.tcp.readable().await;
        arrived.map_err(|error| self.broken(&error))
    }

    /// Takes in what has arrived, and tells whether the answer has begun: TLS has things to say of
    /// its own.
    pub(crate) fn begins(&mut self, buffers: &mut Buffers) -> Result<bool, RequestError> {
        match self.hear_now(buffers) {
            Poll::Pending | Poll::Ready(Ok(Heard::Nothing)) => Ok(false),
            Poll::Ready(Ok(Heard::Answer)) => {
                self.is_used = true;
                Ok(true)
            }
            Poll::Ready(Ok(Heard::End)) => {
                let error =
                    io::Error::new(io::ErrorKind::UnexpectedEof, "closed without an answer");
                Err(self.broken(&error))
            }
            Poll::Ready(Err(error)) => Err(self.broken(&error)),
        }
    }

    /// Reads on the answer that has begun.
    pub(crate) async fn answer(
        &mut self,
        path: &str,
        limit: usize,
        buffers: &mut Buffers,
    ) -> Result<Reply, Failure> {
        let body = loop {
            match buffers.trouble {
                None => {}
                Some(Http1Error::BodyTooLong) => {
                    return Err(Failure::TooLarge {
                        address: self.address.clone(),
                        path: path.to_owned(),
                        limit,
                    });
                }
                Some(error) => return Err(self.unreadable(&error.to_string())),
            }
            if buffers.reader.is_done() {
                break Body::Whole;
            }
            // Not a success: its first words are enough.
            if is_complaint(&buffers.reader) && buffers.body.len() > MAX_COMPLAINT {
                break Body::Cut;
            }
            let is_end_said = match self.hear(buffers).await {
                Ok(Heard::Answer | Heard::Nothing) => continue,
                Ok(Heard::End) => true,
                // Peers that close without saying so are common; whether the body is whole is known
                // otherwise.
                Err(_) => false,
            };
            match (buffers.reader.has_head(), buffers.reader.end()) {
                (false, _) => return Err(self.unreadable("it breaks off within the head")),
                // Only that the peer said so tells a body without a length from one that was cut
                // off.
                (true, true) if is_end_said => break Body::Whole,
                (true, _) => break Body::Cut,
            }
        };
        Ok(Reply {
            status: buffers.reader.status(),
            body,
            // The rest of a record would be lost with the buffers.
            may_be_reused: buffers.reader.may_be_reused() && buffers.are_free(),
        })
    }

    async fn hear(&mut self, buffers: &mut Buffers) -> io::Result<Heard> {
        let count = self.tcp.read(buffers.inbox.room()?).await?;
        self.take_in(count, buffers)
    }

    fn hear_now(&mut self, buffers: &mut Buffers) -> Poll<io::Result<Heard>> {
        let mut room = ReadBuf::new(buffers.inbox.room()?);
        // Nobody is to be woken: who waits does so by `arrival`.
        let mut context = Context::from_waker(Waker::noop());
        ready!(Pin::new(&mut self.tcp).poll_read(&mut context, &mut room))?;
        let count = room.filled().len();
        Poll::Ready(self.take_in(count, buffers))
    }

    /// Takes in the bytes that were read into the inbox.
    fn take_in(&mut self, count: usize, buffers: &mut Buffers) -> io::Result<Heard> {
        let Buffers {
            inbox,
            body,
            reader,
            trouble,
        } = buffers;
        inbox.filled(count);
        let mut heard = Heard::Nothing;
        let mut said = |bytes: &[u8]| {
            heard = Heard::Answer;
            if trouble.is_none() {
                *trouble = reader.feed(bytes, body).err();
            }
        };
        let has_ended = if let Some(tls) = &mut self.tls {
            let progress = tls
                .take_in(inbox, &mut self.outbox, said)
                .map_err(invalid)?;
            let has_ended = progress == Progress::Ended;
            if count == 0 && !has_ended {
                let why = "closed without the end of TLS";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
            }
            has_ended
        } else {
            if count > 0 {
                said(inbox.received());
                inbox.clear();
            }
            count == 0
        };
        Ok(match heard {
            Heard::Nothing if has_ended => Heard::End,
            heard => heard,
        })
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
        let Some(tls) = &mut self.tls else {
            return self.tcp.write_all(request.as_bytes()).await;
        };
        let mut sealed = std::mem::take(&mut self.outbox);
        tls.say(request.as_bytes(), &mut sealed).map_err(invalid)?;
        self.tcp.write_all(&sealed).await
    }

    fn broken(&self, error: &io::Error) -> RequestError {
        if self.is_used {
            return RequestError::Stale;
        }
        // In TLS 1.3 a client learns only now that its certificate was refused.
        RequestError::Failure(lost(&self.address, error))
    }
}

/// Shakes hands over a connection that was just opened.
async fn shake_hands(
    tcp: &mut TcpStream,
    tls: &ClientTls,
    name: ServerName<'static>,
) -> io::Result<ClientRecords> {
    let mut records = ClientRecords::new(tls, name).map_err(invalid)?;
    let (mut inbox, mut outbox) = (Inbox::new(USUAL_HANDSHAKE), Vec::new());
    loop {
        // Whatever a peer says before it is asked is no answer.
        let progress = records.take_in(&mut inbox, &mut outbox, |_| {});
        let sent = tcp.write_all(&outbox).await;
        outbox.clear();
        match progress.map_err(invalid)? {
            Progress::Open if inbox.is_empty() => return sent.map(|()| records),
            Progress::Open | Progress::Handshaking => sent?,
            Progress::Ended => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
        let count = tcp.read(inbox.room()?).await?;
        if count == 0 {
            let why = "closed within the TLS handshake";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
        }
        inbox.filled(count);
    }
}

fn server_name(host: &str) -> Result<ServerName<'static>, Failure> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(ServerName::IpAddress(ip.into()));
    }
    ServerName::try_from(host.to_owned()).map_err(|error| Failure::Dns {
        host: excerpt(host.as_bytes()),
        detail: error.to_string(),
    })
}

/// Why a connection cannot be made, or was lost before it carried anything.
fn lost(address: &str, error: &io::Error) -> Failure {
    let address = address.to_owned();
    match HandshakeFailure::from_io(error) {
        Some(failure) => Failure::Tls { address, failure },
        None => Failure::Connect {
            address,
            detail: excerpt(error.to_string().as_bytes()),
        },
    }
}

/// As streams report what TLS refuses.
fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
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
