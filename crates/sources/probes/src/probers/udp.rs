//! `udp`: datagrams that must be answered.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use regex::bytes::Regex;
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout_at};

use crate::run::Run;
use crate::{Failure, NetworkSettings, Phase, Reason, Target};

use super::connect::{resolve, udp_socket};

/// The settings of `udp`.
#[derive(Debug, Clone)]
pub struct UdpSettings {
    /// What each datagram carries.
    pub payload: Vec<u8>,
    /// What an answer must match; any if `None`.
    pub expect: Option<Regex>,
    /// Number of datagrams, at most [`MAX_PACKETS`](Self::MAX_PACKETS).
    pub packets: u32,
    /// The pause between datagrams.
    pub packet_interval: Duration,
    /// How long answers to the last datagram are waited for.
    pub answer_timeout: Duration,
    /// The highest part of datagrams that may stay without an answer, from 0 to 1.
    pub max_loss: f64,
    pub network: NetworkSettings,
}

/// What became of the datagrams of a run.
#[derive(Debug, Default)]
struct Tally {
    sent: u32,
    answered: u32,
    /// Answers that were not the expected ones.
    mismatched: u32,
    /// Datagrams that the target's host had no receiver for.
    refused: u32,
}

impl Default for UdpSettings {
    fn default() -> Self {
        Self {
            payload: Vec::new(),
            expect: None,
            packets: 1,
            packet_interval: Duration::from_millis(10),
            answer_timeout: Duration::from_secs(1),
            max_loss: 0.0,
            network: NetworkSettings::default(),
        }
    }
}

impl UdpSettings {
    pub const MAX_PACKETS: u32 = 1000;

    pub(crate) async fn run(&self, run: &mut Run<'_>, target: &Target) -> Result<(), Failure> {
        let (host, port) = target.address(run)?;
        let address = SocketAddr::new(resolve(run, host, &self.network).await?, port);
        run.enter(Phase::Connect);
        let socket = udp_socket(address, self.network.source_ip_address).await;
        let socket = socket.map_err(|error| run.fail_io(&error))?;
        run.enter(Phase::Request);
        let tally = self.exchange(run, &socket).await?;
        self.judge(run, &tally)
    }

    /// Sends all datagrams and counts answers until all have come, or the time is over.
    async fn exchange(&self, run: &mut Run<'_>, socket: &UdpSocket) -> Result<Tally, Failure> {
        let packets = self.packets();
        let deadline = run.context.deadline;
        let mut tally = Tally::default();
        // When the next datagram is sent; after the last one, when waiting ends.
        let mut next = Instant::now();
        let mut buffer = vec![0; 65_535];
        while tally.sent < packets || tally.settled() < packets {
            match timeout_at(next, socket.recv(&mut buffer)).await {
                Ok(Ok(length)) => {
                    self.count(&mut tally, buffer.get(..length).unwrap_or_default());
                }
                Ok(Err(error)) => tally
                    .count_error(error)
                    .map_err(|error| run.fail_io(&error))?,
                Err(_) if tally.sent == packets => break,
                Err(_) => {
                    if let Err(error) = socket.send(&self.payload).await {
                        tally
                            .count_error(error)
                            .map_err(|error| run.fail_io(&error))?;
                    }
                    tally.sent = tally.sent.saturating_add(1);
                    let wait = if tally.sent == packets {
                        self.answer_timeout
                    } else {
                        self.packet_interval
                    };
                    let until = Instant::now().checked_add(wait);
                    next = until.map_or(deadline, |until| until.min(deadline));
                }
            }
            run.facts.datagrams = Some((tally.sent, tally.answered));
        }
        Ok(tally)
    }

    fn count(&self, tally: &mut Tally, answer: &[u8]) {
        let is_expected = self
            .expect
            .as_ref()
            .is_none_or(|expect| expect.is_match(answer));
        if tally.settled() >= tally.sent {
            // A duplicate, or not asked for.
        } else if is_expected {
            tally.answered = tally.answered.saturating_add(1);
        } else {
            tally.mismatched = tally.mismatched.saturating_add(1);
        }
    }

    fn judge(&self, run: &Run<'_>, tally: &Tally) -> Result<(), Failure> {
        let packets = self.packets();
        let lost = packets.saturating_sub(tally.answered);
        if f64::from(lost) <= self.max_loss * f64::from(packets) {
            return Ok(());
        }
        let reason = if tally.mismatched > 0 {
            Reason::AnswerMismatch
        } else if tally.refused > 0 && tally.answered == 0 {
            Reason::ConnectRefused
        } else {
            Reason::ReadTimeout
        };
        let Tally {
            answered,
            mismatched,
            refused,
            ..
        } = tally;
        let message = format!(
            "{answered} of {packets} datagrams were answered as expected, {mismatched} otherwise, \
             {refused} were refused"
        );
        Err(run.fail(reason, message))
    }

    fn packets(&self) -> u32 {
        self.packets.clamp(1, Self::MAX_PACKETS)
    }
}

impl Tally {
    /// Datagrams that nothing more is to be expected for.
    fn settled(&self) -> u32 {
        let answers = self.answered.saturating_add(self.mismatched);
        answers.saturating_add(self.refused)
    }

    /// Counts a datagram that was refused, which is reported at the next use of the socket.
    fn count_error(&mut self, error: io::Error) -> io::Result<()> {
        if error.kind() == io::ErrorKind::ConnectionRefused {
            self.refused = self.refused.saturating_add(1);
            Ok(())
        } else {
            Err(error)
        }
    }
}
