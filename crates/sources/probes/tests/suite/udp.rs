//! Datagrams and their loss.

use std::net::SocketAddr;
use std::time::Duration;

use kubevitals_probes::{Phase, Prober, Reason, UdpSettings, compile_regexp};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

use crate::support::{SHORT, assert_failure, assert_success, probe, probe_within};

/// A server that answers the datagrams whose number `answers`, several times if it says so.
async fn server(answers: fn(u32) -> u32) -> (SocketAddr, JoinHandle<()>) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let mut buffer = [0; 2048];
        let mut number = 0;
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            for _ in 0..answers(number) {
                let _ = socket.send_to(&buffer[..length], from).await;
            }
            number += 1;
        }
    });
    (address, task)
}

fn udp(packets: u32, max_loss: f64) -> UdpSettings {
    UdpSettings {
        payload: b"ping".to_vec(),
        expect: Some(compile_regexp("^ping$").unwrap()),
        packets,
        packet_interval: Duration::from_millis(1),
        answer_timeout: SHORT,
        max_loss,
        ..UdpSettings::default()
    }
}

#[tokio::test]
async fn all_datagrams_are_answered() {
    let (address, _server) = server(|_| 1).await;
    let outcome = probe(&Prober::Udp(Box::new(udp(20, 0.0))), &address.to_string()).await;
    assert_success(&outcome);
    assert_eq!(outcome.facts.datagrams, Some((20, 20)));
}

#[tokio::test]
async fn loss_is_judged_by_its_limit_and_duplicates_do_not_hide_it() {
    for (answers, answered) in [(every_other as fn(u32) -> u32, 5), (twice_every_other, 10)] {
        let (address, _server) = server(answers).await;
        for (max_loss, limit) in [(0.5, 5), (0.4, 6)] {
            let prober = Prober::Udp(Box::new(udp(10, max_loss)));
            let outcome = probe(&prober, &address.to_string()).await;
            let (sent, counted) = outcome.facts.datagrams.unwrap();
            assert_eq!(sent, 10);
            assert!(counted <= answered && counted <= sent, "{outcome:?}");
            assert_eq!(outcome.is_success(), counted >= limit, "{outcome:?}");
            if answered == 5 {
                assert_eq!(counted, 5, "{outcome:?}");
            }
        }
    }
}

fn every_other(number: u32) -> u32 {
    number % 2
}

fn twice_every_other(number: u32) -> u32 {
    number % 2 * 2
}

#[tokio::test]
async fn a_silent_server_ends_by_its_own_limit_or_the_deadline() {
    let (address, _server) = server(|_| 0).await;
    let prober = Prober::Udp(Box::new(udp(3, 0.0)));
    let outcome = probe(&prober, &address.to_string()).await;
    assert_failure(&outcome, Reason::ReadTimeout, Phase::Request);
    assert_eq!(outcome.facts.datagrams, Some((3, 0)));
    let patient = Prober::Udp(Box::new(UdpSettings {
        answer_timeout: Duration::from_mins(1),
        ..udp(3, 0.0)
    }));
    let outcome = probe_within(&patient, &address.to_string(), SHORT).await;
    assert_failure(&outcome, Reason::ReadTimeout, Phase::Request);
    assert_eq!(outcome.facts.datagrams, Some((3, 0)));
    // Datagrams that could not be sent in time count as lost, too.
    let slow = Prober::Udp(Box::new(UdpSettings {
        packet_interval: Duration::from_mins(1),
        ..udp(3, 0.0)
    }));
    let outcome = probe_within(&slow, &address.to_string(), SHORT).await;
    assert_failure(&outcome, Reason::ReadTimeout, Phase::Request);
}

#[tokio::test]
async fn a_port_without_a_server_refuses() {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    drop(socket);
    let outcome = probe(&Prober::Udp(Box::new(udp(2, 0.0))), &address.to_string()).await;
    assert_failure(&outcome, Reason::ConnectRefused, Phase::Request);
}

#[tokio::test]
async fn other_answers_than_the_expected_are_a_mismatch() {
    let (address, _server) = server(|_| 1).await;
    let prober = Prober::Udp(Box::new(UdpSettings {
        expect: Some(compile_regexp("pong").unwrap()),
        ..udp(2, 0.0)
    }));
    let outcome = probe(&prober, &address.to_string()).await;
    assert_failure(&outcome, Reason::AnswerMismatch, Phase::Request);
}
