//! Which address is connected to, and from where.

use std::sync::Arc;

use kubevitals_probes::{
    Allow, IpProtocol, NetworkSettings, Phase, ProbeContext, Prober, Reason, Target, TcpSettings,
};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use crate::support::{GENEROUS, Server, assert_failure, assert_success, context, probe, read_head};

fn tcp(network: NetworkSettings) -> Prober {
    Prober::Tcp(Box::new(TcpSettings {
        network,
        ..TcpSettings::default()
    }))
}

#[tokio::test]
async fn the_preferred_protocol_is_used_and_the_other_if_allowed() {
    let v4 = Server::silent().await;
    let target = format!("both.test:{}", v4.port());
    let network = |preferred_ip_protocol, ip_protocol_fallback| NetworkSettings {
        preferred_ip_protocol,
        ip_protocol_fallback,
        ..NetworkSettings::default()
    };
    let outcome = probe(&tcp(network(IpProtocol::Ip4, true)), &target).await;
    assert_success(&outcome);
    assert_eq!(outcome.facts.ip_version, Some(4));
    // Its address of IPv6 is the one to probe, although that of IPv4 would answer.
    let outcome = probe(&tcp(network(IpProtocol::Ip6, true)), &target).await;
    assert_eq!(outcome.facts.ip_version, Some(6));
    assert!(!outcome.is_success());
    // A target with an address of IPv4 alone.
    let target = format!("server.test:{}", v4.port());
    assert_success(&probe(&tcp(network(IpProtocol::Ip6, true)), &target).await);
    let outcome = probe(&tcp(network(IpProtocol::Ip6, false)), &target).await;
    assert_failure(&outcome, Reason::DnsNoAddress, Phase::Resolve);
}

#[tokio::test]
async fn connections_come_from_the_configured_address() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let from = |text: &str| NetworkSettings {
        source_ip_address: Some(text.parse().unwrap()),
        ..NetworkSettings::default()
    };
    let prober = tcp(from("127.0.0.9"));
    let target = address.to_string();
    let (outcome, accepted) = tokio::join!(probe(&prober, &target), listener.accept());
    assert_success(&outcome);
    assert_eq!(accepted.unwrap().1.ip().to_string(), "127.0.0.9");
    // An address of somebody else.
    let outcome = probe(&tcp(from("192.0.2.1")), &target).await;
    assert_failure(&outcome, Reason::ConnectUnreachable, Phase::Connect);
}

#[tokio::test]
async fn the_protocol_of_the_source_is_that_of_the_connection() {
    let server = Server::silent().await;
    let prober = tcp(NetworkSettings {
        source_ip_address: Some("127.0.0.9".parse().unwrap()),
        ..NetworkSettings::default()
    });
    let outcome = probe(&prober, &format!("both.test:{}", server.port())).await;
    assert_success(&outcome);
    assert_eq!(outcome.facts.ip_version, Some(4));
}

#[tokio::test]
async fn denied_addresses_are_not_connected_to_also_by_redirects() {
    let denied = Server::http("HTTP/1.1 200 OK\r\n\r\nsecret").await;
    let location = format!("http://127.0.0.1:{}/", denied.port());
    let open = TcpListener::bind("127.0.0.2:0").await.unwrap();
    let address = open.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let (mut stream, _) = open.accept().await.unwrap();
        read_head(&mut stream).await;
        let head = format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\n\r\n");
        let _ = stream.write_all(head.as_bytes()).await;
    });
    let context = ProbeContext {
        allow: Arc::new(Allow {
            denied_addresses: vec!["127.0.0.1/32".parse().unwrap()],
            ..Allow::default()
        }),
        ..context(GENEROUS)
    };
    let prober = Prober::Http(Box::default());
    for target in [
        format!("http://{address}/"),
        denied.url("/"),
        "http://server.test/".to_owned(),
    ] {
        let target = Target::parse(&target, &prober).unwrap();
        let outcome = prober.run(&target, &context).await;
        assert_failure(&outcome, Reason::NotAllowed, Phase::Resolve);
        assert_ne!(outcome.facts.http_status, Some(200));
    }
    server.await.unwrap();
}

#[tokio::test]
async fn the_system_knows_its_own_name() {
    let server = Server::silent().await;
    let prober = tcp(NetworkSettings {
        preferred_ip_protocol: IpProtocol::Ip4,
        ..NetworkSettings::default()
    });
    let target = Target::parse(&format!("localhost:{}", server.port()), &prober).unwrap();
    let context = ProbeContext {
        resolver: Arc::new(kubevitals_probes::SystemResolver),
        ..context(GENEROUS)
    };
    assert_success(&prober.run(&target, &context).await);
}
