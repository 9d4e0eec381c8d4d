//! TLS on buffers of the caller, against rustls' buffered server.

use std::io::{Read, Write};
use std::sync::Arc;

use kubevitals_tls::{ClientTls, HandshakeFailure, Progress, ReceiveBuffer, UnbufferedClient};
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion};
use rustls_pki_types::ServerName;

use crate::support::{TestCa, TestPair, trusting};

/// Both ends of a connection, and the data that the client received.
struct Pair {
    client: UnbufferedClient,
    server: ServerConnection,
    buffer: ReceiveBuffer,
    /// Maximum number of bytes that arrive at once.
    piece: usize,
    received: Vec<u8>,
}

impl Pair {
    fn new(client: &ClientTls, server: Arc<ServerConfig>, piece: usize) -> Self {
        let name = ServerName::try_from("n").unwrap();
        Self {
            client: UnbufferedClient::new(client, name).unwrap(),
            server: ServerConnection::new(server).unwrap(),
            buffer: ReceiveBuffer::new(512),
            piece,
            received: Vec::new(),
        }
    }

    /// Transfers data until neither side has anything to send.
    fn settle(&mut self) -> Result<Progress, rustls::Error> {
        let mut to_client = Vec::new();
        loop {
            let mut output = Vec::new();
            let received = &mut self.received;
            let progress = self.client.process(&mut self.buffer, &mut output, |bytes| {
                received.extend_from_slice(bytes);
            });
            self.receive(&output);
            let progress = progress?;
            while self.server.wants_write() {
                self.server.write_tls(&mut to_client).unwrap();
            }
            if to_client.is_empty() {
                return Ok(progress);
            }
            let spare = self.buffer.spare().unwrap();
            let count = spare.len().min(self.piece).min(to_client.len());
            spare[..count].copy_from_slice(&to_client[..count]);
            to_client.drain(..count);
            self.buffer.advance(count);
        }
    }

    fn receive(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            self.server.read_tls(&mut bytes).unwrap();
            // Tests that expect an error look at it themselves.
            let _ = self.server.process_new_packets();
        }
    }

    fn send(&mut self, request: &[u8]) -> Vec<u8> {
        let mut output = Vec::new();
        self.client.encrypt(request, &mut output).unwrap();
        self.receive(&output);
        let mut arrived = vec![0; request.len()];
        self.server.reader().read_exact(&mut arrived).unwrap();
        arrived
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the crate makes no server of one version only"
)]
fn serve(pair: &TestPair, version: &'static SupportedProtocolVersion) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = kubevitals_tls::parse_private_key(pair.key.as_bytes()).unwrap();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![pair.der.clone()], key)
        .unwrap();
    config.send_tls13_tickets = 4;
    Arc::new(config)
}

#[test]
fn responses_are_complete_however_they_are_split() {
    let ca = TestCa::new("cluster");
    let (client, pair) = (trusting(ca.roots()), ca.pair(&["n"]));
    let response: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    for version in [&TLS12, &TLS13] {
        for piece in [1_000, 5_000, usize::MAX] {
            let mut connection = Pair::new(&client, serve(&pair, version), piece);
            assert_eq!(connection.settle().unwrap(), Progress::Open);
            for _ in 0..2 {
                assert_eq!(connection.send(b"what?"), b"what?");
                connection.server.set_buffer_limit(None);
                connection.server.writer().write_all(&response).unwrap();
                assert_eq!(connection.settle().unwrap(), Progress::Open);
                assert!(connection.received == response, "{version:?} {piece}");
                assert!(connection.buffer.is_empty());
                connection.received.clear();
            }
        }
    }
}

#[test]
fn a_handshake_completes_byte_by_byte() {
    let ca = TestCa::new("cluster");
    let mut connection = Pair::new(&trusting(ca.roots()), serve(&ca.pair(&["n"]), &TLS13), 1);
    assert_eq!(connection.settle().unwrap(), Progress::Open);
    assert_eq!(connection.send(b"what?"), b"what?");
}

#[test]
fn a_key_update_is_answered() {
    let ca = TestCa::new("cluster");
    let mut connection = Pair::new(
        &trusting(ca.roots()),
        serve(&ca.pair(&["n"]), &TLS13),
        usize::MAX,
    );
    connection.settle().unwrap();
    connection.server.refresh_traffic_keys().unwrap();
    connection.server.writer().write_all(b"hello").unwrap();
    assert_eq!(connection.settle().unwrap(), Progress::Open);
    assert_eq!(connection.received, b"hello");
    assert_eq!(connection.send(b"with new keys?"), b"with new keys?");
}

#[test]
fn a_closed_connection_stays_closed() {
    let ca = TestCa::new("cluster");
    let mut connection = Pair::new(
        &trusting(ca.roots()),
        serve(&ca.pair(&["n"]), &TLS13),
        usize::MAX,
    );
    connection.settle().unwrap();
    connection.server.writer().write_all(b"bye").unwrap();
    connection.server.send_close_notify();
    assert_eq!(connection.settle().unwrap(), Progress::Closed);
    assert_eq!(connection.received, b"bye");
    assert_eq!(connection.settle().unwrap(), Progress::Closed);
}

#[test]
fn a_rejected_peer_receives_an_alert() {
    let ca = TestCa::new("cluster");
    let stranger = TestCa::new("elsewhere").pair(&["n"]);
    let mut connection = Pair::new(&trusting(ca.roots()), serve(&stranger, &TLS13), usize::MAX);
    let error = connection.settle().unwrap_err();
    let failure = HandshakeFailure::from_rustls(&error);
    assert_eq!(failure.reason(), "tls-ca", "{failure}");
    let alert = connection.server.process_new_packets().unwrap_err();
    assert!(matches!(alert, rustls::Error::AlertReceived(_)), "{alert}");
    assert!(
        connection
            .client
            .encrypt(b"secret", &mut Vec::new())
            .is_err()
    );
}

#[test]
fn nothing_is_sent_before_the_peer_is_verified() {
    let ca = TestCa::new("cluster");
    let name = ServerName::try_from("n").unwrap();
    let mut client = UnbufferedClient::new(&trusting(ca.roots()), name).unwrap();
    let mut output = Vec::new();
    assert!(client.encrypt(b"secret", &mut output).is_err());
    let hidden = output.windows(6).all(|part| part != b"secret");
    assert!(hidden);
}

#[test]
fn a_lost_part_of_a_record_is_an_error_and_no_panic() {
    let ca = TestCa::new("cluster");
    let mut connection = Pair::new(
        &trusting(ca.roots()),
        serve(&ca.pair(&["n"]), &TLS13),
        usize::MAX,
    );
    let mut output = Vec::new();
    connection
        .client
        .process(&mut connection.buffer, &mut output, |_| {})
        .unwrap();
    connection.receive(&output);
    let mut flight = Vec::new();
    connection.server.write_tls(&mut flight).unwrap();
    // Within a record.
    let spare = connection.buffer.spare().unwrap();
    let count = spare.len().min(flight.len() - 10);
    spare[..count].copy_from_slice(&flight[..count]);
    connection.buffer.advance(count);
    let mut none = Vec::new();
    let progress = connection
        .client
        .process(&mut connection.buffer, &mut none, |_| {});
    assert_eq!(progress.unwrap(), Progress::Handshaking);
    assert!(!connection.buffer.is_empty());
    connection.buffer.clear();
    for _ in 0..2 {
        assert!(connection.client.encrypt(b"what?", &mut none).is_err());
        let lost = connection
            .client
            .process(&mut connection.buffer, &mut none, |_| {});
        assert!(lost.is_err(), "{lost:?}");
    }
}

#[test]
fn a_receive_buffer_is_bounded() {
    let mut buffer = ReceiveBuffer::new(100);
    let mut received = 0;
    while let Ok(spare) = buffer.spare() {
        assert!(!spare.is_empty());
        let count = spare.len();
        buffer.advance(count);
        received += count;
        assert!(received <= 1 << 20, "{buffer:?}");
    }
    assert_eq!(buffer.filled().len(), received);
    buffer.discard(received - 1);
    assert_eq!(buffer.filled().len(), 1);
    assert_eq!(buffer.spare().unwrap().len(), received - 1);
}
