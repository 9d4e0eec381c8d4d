//! Probes of containers, by the kubelet's rules.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::command;
use crate::http_client;
use crate::instance::Instance;

/// How often a probe that cannot run is tried before its result is an error.
const TRIES: usize = 3;

/// What a probe is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ProbeKind {
    Startup,
    Readiness,
    Liveness,
}

/// The result of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Success,
    Failure(String),
    /// The probe itself failed; the result is discarded.
    Error(String),
}

/// What a prober reports.
#[derive(Debug)]
pub(crate) struct ProbeReport {
    pub kind: ProbeKind,
    pub outcome: Outcome,
    /// Set if the result changed past its threshold.
    pub changed: Option<bool>,
}

/// Counts results up to the thresholds. Pure.
#[derive(Debug, Clone)]
pub(crate) struct Thresholds {
    success: i32,
    failure: i32,
    last: Option<bool>,
    run: i32,
}

impl ProbeKind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Readiness => "Readiness",
            Self::Liveness => "Liveness",
        }
    }

    pub(crate) fn of(self, container: &Container) -> Option<&Probe> {
        match self {
            Self::Startup => container.startup_probe.as_ref(),
            Self::Readiness => container.readiness_probe.as_ref(),
            Self::Liveness => container.liveness_probe.as_ref(),
        }
    }
}

impl Thresholds {
    pub(crate) fn new(probe: &Probe) -> Self {
        Self {
            success: probe.success_threshold.unwrap_or(1).max(1),
            failure: probe.failure_threshold.unwrap_or(3).max(1),
            last: None,
            run: 0,
        }
    }

    /// Adds a result; returns it once its threshold is reached.
    pub(crate) fn add(&mut self, is_success: bool) -> Option<bool> {
        if self.last == Some(is_success) {
            self.run = self.run.saturating_add(1);
        } else {
            self.last = Some(is_success);
            self.run = 1;
        }
        let needed = if is_success {
            self.success
        } else {
            self.failure
        };
        (self.run >= needed).then_some(is_success)
    }
}

/// Runs a probe again and again until it is dropped. `started` is when the container started.
pub(crate) async fn run(
    kind: ProbeKind,
    instance: Arc<Instance>,
    container: Arc<Container>,
    probe: Probe,
    address: IpAddr,
    elapsed: Duration,
    reports: mpsc::Sender<ProbeReport>,
) {
    let seconds = |value: Option<i32>, default: u64| {
        Duration::from_secs(
            value
                .and_then(|one| u64::try_from(one).ok())
                .unwrap_or(default),
        )
    };
    let delay = seconds(probe.initial_delay_seconds, 0).saturating_sub(elapsed);
    let period = seconds(probe.period_seconds, 10).max(Duration::from_secs(1));
    let limit = seconds(probe.timeout_seconds, 1).max(Duration::from_secs(1));
    let mut thresholds = Thresholds::new(&probe);
    tokio::time::sleep(delay).await;
    let mut ticks = tokio::time::interval_at(Instant::now(), period);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let mut outcome = Outcome::Error(String::new());
        for _ in 0..TRIES {
            outcome = once(&instance, &container, &probe, address, limit).await;
            if !matches!(outcome, Outcome::Error(_)) {
                break;
            }
        }
        let changed = match &outcome {
            Outcome::Success => thresholds.add(true),
            Outcome::Failure(_) => thresholds.add(false),
            Outcome::Error(_) => None,
        };
        let report = ProbeReport {
            kind,
            outcome,
            changed,
        };
        if reports.send(report).await.is_err() {
            return;
        }
    }
}

/// Runs a probe once.
pub(crate) async fn once(
    instance: &Instance,
    container: &Container,
    probe: &Probe,
    address: IpAddr,
    limit: Duration,
) -> Outcome {
    if let Some(action) = &probe.exec {
        let argv = action.command.clone().unwrap_or_default();
        let text = argv.join(" ");
        return match command::run(instance, argv, limit).await {
            Ok(output) if output.code == 0 => Outcome::Success,
            Ok(output) => Outcome::Failure(output.text),
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {
                Outcome::Failure(format!(
                    "command timed out: {text:?} timed out after {}s",
                    limit.as_secs()
                ))
            }
            Err(error) => Outcome::Error(error.to_string()),
        };
    }
    if let Some(action) = &probe.http_get {
        let get = match http_client::HttpGet::new(action, container, address) {
            Ok(get) => get,
            Err(message) => return Outcome::Error(message),
        };
        return match get.send(limit, "kube-probe/1.37").await {
            Ok(response) if (200..400).contains(&response.code) => Outcome::Success,
            Ok(response) => Outcome::Failure(format!(
                "HTTP probe failed with statuscode: {}",
                response.code
            )),
            Err(message) => Outcome::Failure(message),
        };
    }
    if let Some(action) = &probe.tcp_socket {
        let Some(port) = port(&action.port, container) else {
            return Outcome::Error("the port of the probe has no such name".to_owned());
        };
        let host = action
            .host
            .as_deref()
            .and_then(|host| host.parse().ok())
            .unwrap_or(address);
        let target = SocketAddr::new(host, port);
        return match tokio::time::timeout(limit, TcpStream::connect(target)).await {
            Ok(Ok(_)) => Outcome::Success,
            Ok(Err(error)) => Outcome::Failure(dial_error(target, &error)),
            Err(_) => Outcome::Failure(format!("dial tcp {target}: i/o timeout")),
        };
    }
    if let Some(action) = &probe.grpc {
        let Ok(port) = u16::try_from(action.port) else {
            return Outcome::Error("the port of the probe is not one".to_owned());
        };
        let service = action.service.as_deref().unwrap_or_default();
        let target = SocketAddr::new(address, port);
        let check = http_client::grpc_health(target, service);
        return match tokio::time::timeout(limit, check).await {
            Ok(Ok(())) => Outcome::Success,
            Ok(Err(message)) => Outcome::Failure(message),
            Err(_) => Outcome::Failure(format!(
                "timeout: failed to connect service \"{target}\" within {}s: context deadline exceeded",
                limit.as_secs()
            )),
        };
    }
    Outcome::Error("missing probe handler".to_owned())
}

/// An error of a connection in the words of Go's `net`.
pub(crate) fn dial_error(target: SocketAddr, error: &std::io::Error) -> String {
    let text = match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        std::io::ErrorKind::NetworkUnreachable => "network is unreachable".to_owned(),
        std::io::ErrorKind::HostUnreachable => "no route to host".to_owned(),
        _ => error.to_string(),
    };
    format!("dial tcp {target}: connect: {text}")
}

/// A port by number, or by the name of a container port.
pub(crate) fn port(port: &IntOrString, container: &Container) -> Option<u16> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => name.parse().ok().or_else(|| {
            let mut ports = container.ports.iter().flatten();
            let named = ports.find(|one| one.name.as_ref() == Some(name));
            named.map(|one| one.container_port)
        })?,
    };
    u16::try_from(number).ok().filter(|one| *one > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_count_up_to_their_thresholds() {
        let probe = Probe {
            success_threshold: Some(2),
            failure_threshold: Some(3),
            ..Probe::default()
        };
        let mut thresholds = Thresholds::new(&probe);
        let results = [
            true, true, false, false, true, false, false, false, false, true, true,
        ];
        let seen: Vec<Option<bool>> = results.into_iter().map(|one| thresholds.add(one)).collect();
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(
            seen,
            [None, yes, None, None, None, None, None, no, no, None, yes]
        );
    }

    #[test]
    fn ports_are_found_by_number_and_name() {
        let container: Container = serde_json::from_value(serde_json::json!({
            "name": "c", "ports": [{"name": "web", "containerPort": 8080}]
        }))
        .expect("a container");
        let named = |name: &str| port(&IntOrString::String(name.to_owned()), &container);
        assert_eq!(named("web"), Some(8080));
        assert_eq!(named("81"), Some(81));
        assert_eq!(named("other"), None);
        assert_eq!(port(&IntOrString::Int(70_000), &container), None);
        assert_eq!(port(&IntOrString::Int(0), &container), None);
    }
}
