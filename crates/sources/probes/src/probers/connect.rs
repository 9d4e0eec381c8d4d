//! The steps that probers share: resolve, connect, TLS.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use kubevitals_tls::Alpn;
use rustls_pki_types::ServerName;
use tokio::net::{TcpSocket, TcpStream, UdpSocket};
use tokio_rustls::TlsConnector;

use crate::context::{MAX_ADDRESSES, ResolveError};
use crate::run::{Run, system_time};
use crate::{Failure, IpProtocol, NetworkSettings, Phase, ProbeTls, Reason};

use super::dns::lookup;
use super::tls_stream::ProbeTlsStream;

/// Resolves a host to one address: the first of the preferred protocol. There is no race of several
/// addresses, so that a run says something about one.
pub(crate) async fn resolve(
    run: &mut Run<'_>,
    host: &str,
    network: &NetworkSettings,
) -> Result<IpAddr, Failure> {
    run.enter(Phase::Resolve);
    let address = match host.parse() {
        Ok(address) => address,
        Err(_) => find(run, host, network).await?,
    };
    if !run.context.allow.allows_address(address) {
        let message = format!("connections to {address} are not allowed");
        return Err(run.fail(Reason::NotAllowed, message));
    }
    run.connects_to(address);
    Ok(address)
}

async fn find(run: &Run<'_>, host: &str, network: &NetworkSettings) -> Result<IpAddr, Failure> {
    let prefers_v4 = network.preferred_ip_protocol == IpProtocol::Ip4;
    let found = match network.resolver {
        Some(server) => lookup::addresses(server, host, network).await,
        None => run.context.resolver.resolve(host).await,
    };
    let found = found.map_err(|error| {
        let reason = match &error {
            ResolveError::NotFound => Reason::DnsNxdomain,
            ResolveError::NoAddress => Reason::DnsNoAddress,
            ResolveError::Failed(_) => Reason::DnsServfail,
        };
        run.fail(reason, format!("cannot resolve {host}: {error}"))
    })?;
    // A connection from an address of one protocol is to one of the same.
    let source = network.source_ip_address;
    let is_usable = |address: &IpAddr| source.is_none_or(|own| own.is_ipv4() == address.is_ipv4());
    let found = found.into_iter().take(MAX_ADDRESSES).filter(is_usable);
    let found: Vec<IpAddr> = found.collect();
    let found = || found.iter().copied();
    let preferred = found().find(|address| address.is_ipv4() == prefers_v4);
    let other = found().next().filter(|_| network.ip_protocol_fallback);
    preferred.or(other).ok_or_else(|| {
        let message = format!("{host} has no address of the wanted protocol");
        run.fail(Reason::DnsNoAddress, message)
    })
}

/// Connects to an address.
pub(crate) async fn connect(
    run: &mut Run<'_>,
    address: SocketAddr,
    network: &NetworkSettings,
) -> Result<TcpStream, Failure> {
    run.enter(Phase::Connect);
    let connecting = async {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        if let Some(source) = network.source_ip_address {
            socket.bind(SocketAddr::new(source, 0))?;
        }
        let stream = socket.connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    connecting.await.map_err(|error| run.fail_io(&error))
}

/// Returns a socket that receives from `peer` only. Its port is random.
pub(crate) async fn udp_socket(peer: SocketAddr, source: Option<IpAddr>) -> io::Result<UdpSocket> {
    let any = || match peer {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((source.unwrap_or_else(any), 0)).await?;
    socket.connect(peer).await?;
    Ok(socket)
}

/// Resolves a host and connects to it.
pub(crate) async fn dial(
    run: &mut Run<'_>,
    host: &str,
    port: u16,
    network: &NetworkSettings,
) -> Result<TcpStream, Failure> {
    let address = resolve(run, host, network).await?;
    connect(run, SocketAddr::new(address, port), network).await
}

/// Makes a full handshake, without resumption, with a server of this name.
pub(crate) async fn handshake<S>(
    run: &mut Run<'_>,
    stream: S,
    name: &str,
    tls: &ProbeTls,
    alpn: &[Alpn],
) -> Result<ProbeTlsStream<S>, Failure>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    run.enter(Phase::Tls);
    let name = name.strip_suffix('.').unwrap_or(name);
    let name = ServerName::try_from(name).map_err(|_| {
        let message = format!("{name:?} cannot be the name of a server");
        run.fail(Reason::TlsOther, message)
    })?;
    let name = name.to_owned();
    let client = tls.client().await.map_err(|error| {
        let message = format!("the TLS settings cannot be used: {}", with_causes(&error));
        run.fail(Reason::Internal, message)
    })?;
    let now = system_time(run.context.clock.now());
    let (config, peer) = client.observed(alpn, now);
    run.observe(peer, client.verified().is_some());
    let connecting = TlsConnector::from(Arc::clone(&config)).connect(name, stream);
    let stream = connecting.await.map_err(|error| run.fail_io(&error))?;
    let (_, session) = stream.get_ref();
    run.facts.tls_version = session.protocol_version().and_then(version_name);
    run.facts.tls_cipher = session
        .negotiated_cipher_suite()
        .and_then(|suite| suite.suite().as_str())
        .map(registered_name);
    Ok(ProbeTlsStream::new(stream))
}

fn version_name(version: rustls::ProtocolVersion) -> Option<&'static str> {
    match version {
        rustls::ProtocolVersion::TLSv1_2 => Some("TLS 1.2"),
        rustls::ProtocolVersion::TLSv1_3 => Some("TLS 1.3"),
        _ => None,
    }
}

/// The registered name of a suite. rustls has the version in the names of TLS 1.3.
fn registered_name(name: &'static str) -> &'static str {
    match name {
        "TLS13_AES_128_GCM_SHA256" => "TLS_AES_128_GCM_SHA256",
        "TLS13_AES_256_GCM_SHA384" => "TLS_AES_256_GCM_SHA384",
        "TLS13_CHACHA20_POLY1305_SHA256" => "TLS_CHACHA20_POLY1305_SHA256",
        other => other,
    }
}

/// An error with its causes.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
