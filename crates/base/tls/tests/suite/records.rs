//! TLS over lent buffers, against rustls' ordinary server.

use std::io::{Read, Write};
use std::sync::Arc;

use kubevitals_tls::{ClientRecords, ClientTls, HandshakeFailure, Inbox, Progress};
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion};
use rustls_pki_types::ServerName;

use crate::support::{TestCa, TestPair, trusting};

/// Both ends, and what the client was told.
struct Talk {
    client: ClientRecords,
    server: ServerConnection,
    inbox: Inbox,
    /// How many bytes arrive at once.
    piece: usize,
    said: Vec<u8>,
}

impl Talk {
    fn new(client: &ClientTls, server: Arc<ServerConfig>, piece: usize) -> Self {
        let name = ServerName::try_from("n").unwrap();
        Self {
            client: ClientRecords::new(client, name).unwrap(),
            server: ServerConnection::new(server).unwrap(),
            inbox: Inbox::new(512),
            piece,
            said: Vec::new(),
        }
    }

    /// Lets both sides talk until neither has anything to send.
    fn settle(&mut self) -> Result<Progress, rustls::Error> {
        let mut to_client = Vec::new();
        loop {
            let mut outbox = Vec::new();
            let said = &mut self.said;
            let taken = self.client.take_in(&mut self.inbox, &mut outbox, |bytes| {
                said.extend_from_slice(bytes);
            });
            self.receive(&outbox);
            let progress = taken?;
            while self.server.wants_write() {
                self.server.write_tls(&mut to_client).unwrap();
            }
            if to_client.is_empty() {
                return Ok(progress);
            }
            let room = self.inbox.room().unwrap();
            let count = room.len().min(self.piece).min(to_client.len());
            room[..count].copy_from_slice(&to_client[..count]);
            to_client.drain(..count);
            self.inbox.filled(count);
        }
    }

    fn receive(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            self.server.read_tls(&mut bytes).unwrap();
            // Refusals are looked at by who expects them.
            let _ = self.server.process_new_packets();
        }
    }

    fn ask(&mut self, question: &[u8]) -> Vec<u8> {
        let mut outbox = Vec::new();
        self.client.say(question, &mut outbox).unwrap();
        self.receive(&outbox);
        let mut asked = vec![0; question.len()];
        self.server.reader().read_exact(&mut asked).unwrap();
        asked
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
fn answers_arrive_whole_however_they_are_cut() {
    let ca = TestCa::new("cluster");
    let (client, pair) = (trusting(ca.roots()), ca.pair(&["n"]));
    let answer: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    for version in [&TLS12, &TLS13] {
        for piece in [1_000, 5_000, usize::MAX] {
            let mut talk = Talk::new(&client, serve(&pair, version), piece);
            assert_eq!(talk.settle().unwrap(), Progress::Open);
            for _ in 0..2 {
                assert_eq!(talk.ask(b"what?"), b"what?");
                talk.server.set_buffer_limit(None);
                talk.server.writer().write_all(&answer).unwrap();
                assert_eq!(talk.settle().unwrap(), Progress::Open);
                assert!(talk.said == answer, "{version:?} {piece}");
                assert!(talk.inbox.is_empty());
                talk.said.clear();
            }
        }
    }
}

#[test]
fn a_handshake_byte_by_byte_is_one_too() {
    let ca = TestCa::new("cluster");
    let mut talk = Talk::new(&trusting(ca.roots()), serve(&ca.pair(&["n"]), &TLS13), 1);
    assert_eq!(talk.settle().unwrap(), Progress::Open);
    assert_eq!(talk.ask(b"what?"), b"what?");
}

#[test]
fn new_keys_are_answered() {
    let ca = TestCa::new("cluster");
    let mut talk = Talk::new(
        &trusting(ca.roots()),
        serve(&ca.pair(&["n"]), &TLS13),
        usize::MAX,
    );
    talk.settle().unwrap();
    talk.server.refresh_traffic_keys().unwrap();
    talk.server.writer().write_all(b"hello").unwrap();
    assert_eq!(talk.settle().unwrap(), Progress::Open);
    assert_eq!(talk.said, b"hello");
    assert_eq!(talk.ask(b"with new keys?"), b"with new keys?");
}

#[test]
fn the_end_is_told_and_stays() {
    let ca = TestCa::new("cluster");
    let mut talk = Talk::new(
        &trusting(ca.roots()),
        serve(&ca.pair(&["n"]), &TLS13),
        usize::MAX,
    );
    talk.settle().unwrap();
    talk.server.writer().write_all(b"bye").unwrap();
    talk.server.send_close_notify();
    assert_eq!(talk.settle().unwrap(), Progress::Ended);
    assert_eq!(talk.said, b"bye");
    assert_eq!(talk.settle().unwrap(), Progress::Ended);
}

#[test]
fn a_peer_that_is_refused_is_told_so() {
    let ca = TestCa::new("cluster");
    let stranger = TestCa::new("elsewhere").pair(&["n"]);
    let mut talk = Talk::new(&trusting(ca.roots()), serve(&stranger, &TLS13), usize::MAX);
    let error = talk.settle().unwrap_err();
    let failure = HandshakeFailure::from_rustls(&error);
    assert_eq!(failure.reason(), "tls-ca", "{failure}");
    // The server was sent the alert, and says so from now on.
    let told = talk.server.process_new_packets().unwrap_err();
    assert!(matches!(told, rustls::Error::AlertReceived(_)), "{told}");
    assert!(talk.client.say(b"secret", &mut Vec::new()).is_err());
}

#[test]
fn nothing_is_said_before_the_peer_is_known() {
    let ca = TestCa::new("cluster");
    let name = ServerName::try_from("n").unwrap();
    let mut client = ClientRecords::new(&trusting(ca.roots()), name).unwrap();
    let mut outbox = Vec::new();
    assert!(client.say(b"secret", &mut outbox).is_err());
    let hidden = outbox.windows(6).all(|part| part != b"secret");
    assert!(hidden);
}

#[test]
fn a_lost_part_of_a_record_is_an_error_and_no_panic() {
    let ca = TestCa::new("cluster");
    let mut talk = Talk::new(
        &trusting(ca.roots()),
        serve(&ca.pair(&["n"]), &TLS13),
        usize::MAX,
    );
    let mut outbox = Vec::new();
    talk.client
        .take_in(&mut talk.inbox, &mut outbox, |_| {})
        .unwrap();
    talk.receive(&outbox);
    let mut flight = Vec::new();
    talk.server.write_tls(&mut flight).unwrap();
    // Within a record.
    let room = talk.inbox.room().unwrap();
    let count = room.len().min(flight.len() - 10);
    room[..count].copy_from_slice(&flight[..count]);
    talk.inbox.filled(count);
    let mut none = Vec::new();
    let progress = talk.client.take_in(&mut talk.inbox, &mut none, |_| {});
    assert_eq!(progress.unwrap(), Progress::Handshaking);
    assert!(!talk.inbox.is_empty());
    talk.inbox.clear();
    for _ in 0..2 {
        assert!(talk.client.say(b"what?", &mut none).is_err());
        let lost = talk.client.take_in(&mut talk.inbox, &mut none, |_| {});
        assert!(lost.is_err(), "{lost:?}");
    }
}

#[test]
fn an_inbox_is_bounded() {
    let mut inbox = Inbox::new(100);
    let mut received = 0;
    while let Ok(room) = inbox.room() {
        assert!(!room.is_empty());
        let count = room.len();
        inbox.filled(count);
        received += count;
        assert!(received <= 1 << 20, "{inbox:?}");
    }
    assert_eq!(inbox.received().len(), received);
    inbox.discard(received - 1);
    assert_eq!(inbox.received().len(), 1);
    assert_eq!(inbox.room().unwrap().len(), received - 1);
}
