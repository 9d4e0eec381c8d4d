//! `udp`: datagrams that must be answered.

use std::time::Duration;

use regex::bytes::Regex;

use crate::NetworkSettings;

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

impl UdpSettings {
    pub const MAX_PACKETS: u32 = 1000;
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
