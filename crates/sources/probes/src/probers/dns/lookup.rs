//! Lookups of targets by a DNS server of the module, instead of the system's.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

use super::super::connect::udp_socket;
use super::client::{QueryError, ask_stream, ask_udp};
use super::kinds::{DnsClass, DnsType};
use super::message::{Message, Question};
use crate::context::{MAX_ADDRESSES, ResolveError};
use crate::{IpProtocol, NetworkSettings};

/// When a query is sent again, as datagrams get lost. The run's deadline ends it.
const RESEND: Duration = Duration::from_secs(1);

const NXDOMAIN: u16 = 3;

/// Asks a server for the addresses of a name: of the preferred protocol, and of the other if there
/// is none. Names are complete: there is no search list.
pub(crate) async fn addresses(
    server: SocketAddr,
    host: &str,
    network: &NetworkSettings,
) -> Result<Vec<IpAddr>, ResolveError> {
    let kinds = match network.preferred_ip_protocol {
        IpProtocol::Ip4 => [DnsType::A, DnsType::AAAA],
        IpProtocol::Ip6 => [DnsType::AAAA, DnsType::A],
    };
    let asked = if network.ip_protocol_fallback { 2 } else { 1 };
    for kind in kinds.into_iter().take(asked) {
        let question = Question::new(host, kind, DnsClass::IN);
        let question = question.map_err(|error| ResolveError::Failed(error.to_string()))?;
        let message = ask(server, &question, network).await;
        let message = message.map_err(|error| ResolveError::Failed(error.to_string()))?;
        match message.rcode {
            0 => {}
            NXDOMAIN => return Err(ResolveError::NotFound),
            rcode => return Err(ResolveError::Failed(super::kinds::rcode_name(rcode))),
        }
        let found = message.answers.iter().filter_map(|record| record.address);
        let found: Vec<IpAddr> = found.take(MAX_ADDRESSES).collect();
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Err(ResolveError::NoAddress)
}

async fn ask(
    server: SocketAddr,
    question: &Question,
    network: &NetworkSettings,
) -> Result<Message, QueryError> {
    let source = network.source_ip_address;
    let source = source.filter(|source| source.is_ipv4() == server.is_ipv4());
    let socket = udp_socket(server, source).await?;
    let message = loop {
        if let Ok(answer) = timeout(RESEND, ask_udp(&socket, question, true)).await {
            break answer?;
        }
    };
    if !message.is_truncated {
        return Ok(message);
    }
    let mut stream = TcpStream::connect(server).await?;
    ask_stream(&mut stream, question, true).await
}
