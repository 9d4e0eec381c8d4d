//! The accept loop on real sockets.

use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;

use super::*;
use crate::connection::{Accepted, Connection, Plain};

/// Reached only by a hang.
const DEADLINE: Duration = Duration::from_mins(1);

/// Responds to `/wait` once it is notified, and to other paths at once.
#[derive(Default)]
struct Paths {
    waiting: Notify,
    release: Notify,
}

impl Handler<IpAddr> for Paths {
    type Body = Full<Bytes>;

    async fn handle(
        &self,
        connection: &Arc<Connection<IpAddr>>,
        request: Request<Incoming>,
    ) -> Response<Full<Bytes>> {
        if request.uri().path() == "/wait" {
            connection.state.authenticated();
            self.waiting.notify_one();
            self.release.notified().await;
        }
        Response::new(Full::from("x"))
    }
}

/// Upgrades every connection, and passes its stream to the test.
struct Upgrades(mpsc::Sender<TokioIo<Upgraded>>);

impl Handler<IpAddr> for Upgrades {
    type Body = Full<Bytes>;

    async fn handle(
        &self,
        _: &Arc<Connection<IpAddr>>,
        request: Request<Incoming>,
    ) -> Response<Full<Bytes>> {
        let streams = self.0.clone();
        let upgrade = hyper::upgrade::on(request);
        tokio::spawn(async move {
            if let Ok(stream) = upgrade.await {
                let _ = streams.send(TokioIo::new(stream)).await;
            }
        });
        let response = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
        let response = response.header("connection", "upgrade");
        let response = response.header("upgrade", "echo");
        response.body(Full::default()).unwrap()
    }
}

/// Never completes a handshake.
struct Stuck;

impl Transport for Stuck {
    type Io = TcpStream;
    type Peer = IpAddr;

    async fn handshake(&self, _: TcpStream, _: IpAddr) -> io::Result<Accepted<TcpStream, IpAddr>> {
        std::future::pending().await
    }
}

/// Reports the keepalive of accepted sockets: whether it is on, after how long without data probes
/// begin, and how far apart they are.
struct Keepalive(mpsc::Sender<(bool, Duration, Duration)>);

impl Transport for Keepalive {
    type Io = TcpStream;
    type Peer = IpAddr;

    async fn handshake(
        &self,
        stream: TcpStream,
        _: IpAddr,
    ) -> io::Result<Accepted<TcpStream, IpAddr>> {
        use rustix::net::sockopt;
        let is_on = sockopt::socket_keepalive(&stream)?;
        let idle = sockopt::tcp_keepidle(&stream)?;
        let interval = sockopt::tcp_keepintvl(&stream)?;
        let _ = self.0.send((is_on, idle, interval)).await;
        Err(io::ErrorKind::Other.into())
    }
}

struct Harness<H = Paths> {
    address: SocketAddr,
    handler: Arc<H>,
    metrics: ServerMetrics,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Harness {
    async fn start<T: Transport<Peer = IpAddr>>(transport: T, limits: Limits) -> Self {
        Self::serve(transport, Arc::default(), limits).await
    }

    /// Waits until the handler has a request for `/wait`.
    async fn until_waiting(&self) {
        within("a request that waits", self.handler.waiting.notified()).await;
    }
}

impl<H: Handler<IpAddr>> Harness<H> {
    async fn serve<T: Transport<Peer = IpAddr>>(
        transport: T,
        handler: Arc<H>,
        limits: Limits,
    ) -> Self {
        let metrics = ServerMetrics::default();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = Server::bind("test", address, limits, metrics.clone())
            .await
            .unwrap();
        let address = server.local_addr();
        let (stop, stopped) = oneshot::channel();
        let shutdown = async {
            let _dropped = stopped.await;
        };
        let task = tokio::spawn(server.serve(transport, Arc::clone(&handler), shutdown));
        Self {
            address,
            handler,
            metrics,
            stop,
            task,
        }
    }

    async fn connect(&self) -> TcpStream {
        let connected = TcpStream::connect(self.address);
        within("a connection", connected).await.unwrap()
    }

    /// Connects from `127.0.1.N`.
    async fn connect_from(&self, number: u16) -> TcpStream {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        let own = Ipv4Addr::from_bits(Ipv4Addr::LOCALHOST.to_bits() + 0xff + u32::from(number));
        socket.bind(SocketAddr::from((own, 0))).unwrap();
        let connected = socket.connect(self.address);
        within("a connection", connected).await.unwrap()
    }
}

async fn send(stream: &mut TcpStream, path: &str) {
    let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
}

/// Waits for what must happen.
async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let result = tokio::time::timeout(DEADLINE, future).await;
    result.unwrap_or_else(|_| panic!("not within {DEADLINE:?}: {what}"))
}

async fn receive(stream: &mut TcpStream) {
    let mut response = Vec::new();
    within("a complete response", async {
        while !response.ends_with(b"\r\n\r\nx") {
            response.push(stream.read_u8().await.unwrap());
        }
    })
    .await;
}

async fn is_closed(stream: &mut TcpStream) -> bool {
    let mut byte = [0; 1];
    let read = within("the server closes a connection", stream.read(&mut byte)).await;
    matches!(read, Ok(0) | Err(_))
}

/// Timeouts that no test reaches: only an eviction makes room.
fn patient(connections: usize) -> Limits {
    let never = Duration::from_hours(1);
    Limits {
        connections,
        handshake_timeout: never,
        header_timeout: never,
        idle_timeout: never,
        response_timeout: never,
        stall_timeout: never,
        ..Limits::default()
    }
}

#[tokio::test]
async fn idle_connections_are_evicted_and_active_ones_are_not() {
    let harness = Harness::start(Plain, patient(2)).await;
    let (mut active, mut idle) = (harness.connect().await, harness.connect().await);
    send(&mut active, "/wait").await;
    harness.until_waiting().await;
    send(&mut idle, "/").await;
    receive(&mut idle).await;
    let mut third = harness.connect().await;
    assert!(is_closed(&mut idle).await);
    send(&mut third, "/").await;
    receive(&mut third).await;
    harness.handler.release.notify_one();
    receive(&mut active).await;
    assert_eq!(harness.metrics.evictions.get(), 1);
}

/// They used to keep every other client waiting until they timed out.
#[tokio::test]
async fn silent_connections_keep_nobody_waiting() {
    for bytes in ["", "G"] {
        let harness = Harness::start(Plain, patient(4)).await;
        let mut silent = Vec::new();
        for number in 0..20 {
            let mut stream = harness.connect_from(number % 3).await;
            stream.write_all(bytes.as_bytes()).await.unwrap();
            silent.push(stream);
            if number % 5 == 4 {
                let mut client = harness.connect_from(9).await;
                send(&mut client, "/").await;
                receive(&mut client).await;
            }
        }
        assert!(is_closed(&mut silent[0]).await);
        assert!(harness.metrics.connections.get() <= 5);
    }
}

/// The number of connections that a server has by default.
#[tokio::test]
async fn a_thousand_silent_connections_keep_nobody_waiting() {
    let harness = Harness::start(Plain, patient(Limits::default().connections)).await;
    let mut silent = Vec::new();
    for number in 0..1100_u16 {
        // From one address and from many.
        let address = if number < 600 { 1 } else { number % 251 };
        silent.push(harness.connect_from(address).await);
    }
    let mut client = harness.connect().await;
    send(&mut client, "/").await;
    receive(&mut client).await;
    assert!(harness.metrics.evictions.get() >= 76);
}

#[tokio::test]
async fn a_client_waits_while_all_connections_are_busy() {
    let harness = Harness::start(Plain, patient(1)).await;
    let mut busy = harness.connect().await;
    send(&mut busy, "/wait").await;
    harness.until_waiting().await;
    let mut client = harness.connect().await;
    send(&mut client, "/").await;
    harness.handler.release.notify_one();
    receive(&mut busy).await;
    receive(&mut client).await;
}

#[tokio::test]
async fn a_drain_waits_for_active_connections() {
    let harness = Harness::start(Plain, Limits::default()).await;
    let mut active = harness.connect().await;
    send(&mut active, "/wait").await;
    harness.until_waiting().await;
    drop(harness.stop);
    // The port is closed as soon as the drain begins.
    within("the port is closed", async {
        while TcpStream::connect(harness.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(!harness.task.is_finished());
    harness.handler.release.notify_one();
    receive(&mut active).await;
    let ended = within("the server ends", harness.task).await;
    ended.unwrap();
    assert_eq!(harness.metrics.connections.get(), 0);
}

#[tokio::test]
async fn handshakes_time_out() {
    let limits = Limits {
        handshake_timeout: Duration::from_millis(20),
        ..Limits::default()
    };
    for fair_queue in [true, false] {
        let harness = Harness::start(
            Stuck,
            Limits {
                fair_queue,
                ..limits
            },
        )
        .await;
        let mut client = harness.connect().await;
        client.write_all(b"x").await.unwrap();
        assert!(is_closed(&mut client).await);
        assert_eq!(harness.metrics.handshake_timeouts.get(), 1);
        drop(harness.stop);
        let ended = within("the server ends", harness.task).await;
        ended.unwrap();
    }
}

/// The connection of a client whose machine vanished stayed open until something was sent on it.
#[tokio::test]
async fn accepted_sockets_probe_their_client_while_nothing_is_sent() {
    let (reported, mut keepalive) = mpsc::channel(1);
    let server = Harness::start(Keepalive(reported), Limits::default()).await;
    let _client = TcpStream::connect(server.address).await.unwrap();
    let seconds = Duration::from_secs;
    let keepalive = within("an accepted socket", keepalive.recv()).await;
    assert_eq!(keepalive, Some((true, seconds(15), seconds(15))));
}

const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";

/// A connection that is upgraded: both ends.
async fn upgrade(
    harness: &Harness<Upgrades>,
    streams: &mut mpsc::Receiver<TokioIo<Upgraded>>,
    early: &[u8],
) -> (TcpStream, TokioIo<Upgraded>) {
    let mut client = harness.connect().await;
    client.write_all(&[UPGRADE, early].concat()).await.unwrap();
    let mut response = Vec::new();
    while !response.ends_with(b"\r\n\r\n") {
        response.push(client.read_u8().await.unwrap());
    }
    assert!(response.starts_with(b"HTTP/1.1 101 "));
    (client, streams.recv().await.unwrap())
}

async fn upgrades(limits: Limits) -> (Harness<Upgrades>, mpsc::Receiver<TokioIo<Upgraded>>) {
    let (sender, streams) = mpsc::channel(8);
    let harness = Harness::serve(Plain, Arc::new(Upgrades(sender)), limits).await;
    (harness, streams)
}

/// Waits until the server has this many connections.
async fn connections<H>(harness: &Harness<H>, count: i64) {
    while harness.metrics.connections.get() != count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_upgraded_connection_carries_bytes_and_counts_until_its_stream_is_dropped() {
    within("the end of the test", async {
        let (harness, mut streams) = upgrades(Limits::default()).await;
        let (mut client, mut server) = upgrade(&harness, &mut streams, b"early").await;
        let mut early = [0; 5];
        server.read_exact(&mut early).await.unwrap();
        assert_eq!(&early, b"early");
        // More than the heads of all requests may have, and more than a permit allows.
        let sent = vec![7; 20 << 20];
        let expected = sent.len();
        let copy = tokio::spawn(async move {
            client.write_all(&sent).await.unwrap();
            client.shutdown().await.unwrap();
            let mut received = Vec::new();
            client.read_to_end(&mut received).await.unwrap();
            received.len()
        });
        let mut received = Vec::new();
        server.read_to_end(&mut received).await.unwrap();
        assert_eq!(received.len(), expected);
        server.write_all(&received).await.unwrap();
        assert_eq!(harness.metrics.connections.get(), 1);
        drop(server);
        assert_eq!(copy.await.unwrap(), expected);
        connections(&harness, 0).await;
    })
    .await;
}

#[tokio::test]
async fn an_upgraded_connection_is_not_evicted() {
    within("the end of the test", async {
        let (harness, mut streams) = upgrades(patient(1)).await;
        let (mut client, mut server) = upgrade(&harness, &mut streams, b"").await;
        // The only place is taken, so this one waits until the first ends.
        let mut second = harness.connect().await;
        second.write_all(UPGRADE).await.unwrap();
        for byte in 0..100 {
            client.write_all(&[byte]).await.unwrap();
            assert_eq!(server.read_u8().await.unwrap(), byte);
            server.write_all(&[byte]).await.unwrap();
            assert_eq!(client.read_u8().await.unwrap(), byte);
        }
        assert_eq!(harness.metrics.evictions.get(), 0);
        assert_eq!(harness.metrics.connections.get(), 1);
        assert!(streams.try_recv().is_err());
        drop(server);
        streams.recv().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_drain_cuts_upgraded_connections_also_of_clients_that_do_not_read() {
    within("the end of the test", async {
        let limits = Limits {
            drain_timeout: Duration::from_millis(20),
            ..Limits::default()
        };
        let (harness, mut streams) = upgrades(limits).await;
        let (_stuck, mut writing) = upgrade(&harness, &mut streams, b"").await;
        let (_silent, mut reading) = upgrade(&harness, &mut streams, b"").await;
        let write = tokio::spawn(async move {
            let block = vec![0; 1 << 20];
            loop {
                if let Err(error) = writing.write_all(&block).await {
                    return error.kind();
                }
            }
        });
        let read = tokio::spawn(async move { reading.read_u8().await.unwrap_err().kind() });
        connections(&harness, 2).await;
        drop(harness.stop);
        harness.task.await.unwrap();
        assert_eq!(write.await.unwrap(), io::ErrorKind::ConnectionAborted);
        assert_eq!(read.await.unwrap(), io::ErrorKind::ConnectionAborted);
        assert_eq!(harness.metrics.connections.get(), 0);
    })
    .await;
}

#[tokio::test]
async fn an_upgrade_whose_client_has_left_ends() {
    within("the end of the test", async {
        let (harness, mut streams) = upgrades(Limits::default()).await;
        let (client, mut server) = upgrade(&harness, &mut streams, b"").await;
        drop(client);
        assert_eq!(server.read(&mut [0; 1]).await.unwrap(), 0);
        drop(server);
        connections(&harness, 0).await;
    })
    .await;
}
