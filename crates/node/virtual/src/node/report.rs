//! The status of the Node, and when it is written.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevitals_model::Moment;
use serde_json::{Value, json};

use crate::settings::NodeSettings;
use crate::time::api_time;

/// Whether the node can run pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Readiness {
    Ready,
    /// With the reason.
    NotReady(String),
}

/// What was written last.
#[derive(Debug)]
pub(super) struct StatusReport {
    interval: Duration,
    written: Option<(Readiness, Duration)>,
    /// The status of each condition and the time at which it changed.
    transitions: BTreeMap<String, (String, Time)>,
}

/// A condition without its times.
struct Condition {
    kind: &'static str,
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl StatusReport {
    pub(super) const fn new(interval: Duration) -> Self {
        Self {
            interval,
            written: None,
            transitions: BTreeMap::new(),
        }
    }

    /// Continues from the conditions of an existing Node.
    pub(super) fn adopt(&mut self, node: &Node) {
        self.written = None;
        self.transitions.clear();
        let status = node.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_ref());
        for condition in conditions.into_iter().flatten() {
            if let Some(time) = &condition.last_transition_time {
                let before = (condition.status.clone(), time.clone());
                self.transitions.insert(condition.type_.clone(), before);
            }
        }
    }

    /// Returns the status if it must be written: it changed, or it was written long ago.
    pub(super) fn due(
        &mut self,
        settings: &NodeSettings,
        readiness: &Readiness,
        now: Moment,
    ) -> Option<Value> {
        let is_due = match &self.written {
            None => true,
            Some((written, at)) => {
                written != readiness || now.monotonic.saturating_sub(*at) >= self.interval
            }
        };
        is_due.then(|| self.render(settings, readiness, now))
    }

    /// Records a write. Returns the readiness if it differs from that written before.
    pub(super) fn written(&mut self, readiness: &Readiness, now: Moment) -> Option<bool> {
        let is_ready = *readiness == Readiness::Ready;
        let before = self.written.replace((readiness.clone(), now.monotonic));
        let was_ready = before.map(|(before, _)| before == Readiness::Ready);
        (was_ready != Some(is_ready) && (is_ready || was_ready.is_some())).then_some(is_ready)
    }

    pub(super) fn render(
        &mut self,
        settings: &NodeSettings,
        readiness: &Readiness,
        now: Moment,
    ) -> Value {
        let heartbeat = api_time(now.wall);
        let conditions: Vec<Value> = conditions(readiness)
            .into_iter()
            .map(|condition| {
                let Condition {
                    kind,
                    status,
                    reason,
                    message,
                } = condition;
                let since = match self.transitions.get(kind) {
                    Some((before, since)) if before == status => since.clone(),
                    _ => heartbeat.clone(),
                };
                self.transitions
                    .insert(kind.to_owned(), (status.to_owned(), since.clone()));
                json!({
                    "type": kind,
                    "status": status,
                    "reason": reason,
                    "message": message,
                    "lastHeartbeatTime": heartbeat,
                    "lastTransitionTime": since,
                })
            })
            .collect();
        let mut status = json!({
            "addresses": settings.addresses,
            "allocatable": settings.allocatable,
            "capacity": settings.capacity,
            "conditions": conditions,
            "daemonEndpoints": {"kubeletEndpoint": {"Port": settings.port}},
            "nodeInfo": settings.info,
        });
        if !settings.declared_features.is_empty()
            && let Some(status) = status.as_object_mut()
        {
            let features = json!(settings.declared_features);
            status.insert("declaredFeatures".to_owned(), features);
        }
        status
    }
}

/// The conditions in the order of a kubelet.
fn conditions(readiness: &Readiness) -> [Condition; 5] {
    let no_pressure = |kind, reason, what: &str| Condition {
        kind,
        status: "False",
        reason,
        message: format!("kubevitals node has {what} available"),
    };
    let ready = match readiness {
        Readiness::Ready => Condition {
            kind: "Ready",
            status: "True",
            reason: "KubeletReady",
            message: "kubevitals node is posting ready status".to_owned(),
        },
        Readiness::NotReady(reason) => Condition {
            kind: "Ready",
            status: "False",
            reason: "KubeletNotReady",
            message: reason.clone(),
        },
    };
    [
        no_pressure(
            "MemoryPressure",
            "KubeletHasSufficientMemory",
            "sufficient memory",
        ),
        no_pressure(
            "DiskPressure",
            "KubeletHasNoDiskPressure",
            "sufficient disk space",
        ),
        no_pressure("PIDPressure", "KubeletHasSufficientPID", "sufficient PIDs"),
        Condition {
            kind: "NetworkUnavailable",
            status: "False",
            reason: "ProviderNetwork",
            message: "the provider sets up the network of pods".to_owned(),
        },
        ready,
    ]
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::NodeSystemInfo;
    use kubevitals_model::Timestamp;

    use super::*;

    fn settings() -> NodeSettings {
        NodeSettings {
            name: "edge".to_owned(),
            provider: "sim".to_owned(),
            labels: BTreeMap::new(),
            taints: Vec::new(),
            addresses: Vec::new(),
            port: 10250,
            capacity: BTreeMap::new(),
            allocatable: BTreeMap::new(),
            info: NodeSystemInfo::default(),
            declared_features: vec!["ExtendWebSocketsToKubelet".to_owned()],
        }
    }

    fn at(seconds: u64) -> Moment {
        let monotonic = Duration::from_secs(seconds);
        Moment {
            wall: Timestamp::from_unix_millis(0)
                .checked_add(monotonic)
                .unwrap(),
            monotonic,
        }
    }

    fn ready_times(status: &Value) -> (Value, Value) {
        let conditions = status["conditions"].as_array().unwrap();
        let ready = conditions
            .iter()
            .find(|one| one["type"] == "Ready")
            .unwrap();
        (
            ready["lastHeartbeatTime"].clone(),
            ready["lastTransitionTime"].clone(),
        )
    }

    #[test]
    fn a_status_is_written_when_it_changed_and_every_five_minutes() {
        let (settings, ready) = (settings(), Readiness::Ready);
        let mut report = StatusReport::new(Duration::from_mins(5));
        let first = report.due(&settings, &ready, at(0)).unwrap();
        assert_eq!(
            first["declaredFeatures"],
            json!(["ExtendWebSocketsToKubelet"])
        );
        assert_eq!(report.written(&ready, at(0)), Some(true));
        assert!(report.due(&settings, &ready, at(10)).is_none());
        assert!(report.due(&settings, &ready, at(299)).is_none());
        let second = report.due(&settings, &ready, at(300)).unwrap();
        let (heartbeat, transition) = ready_times(&second);
        assert_eq!(heartbeat, "1970-01-01T00:05:00Z");
        assert_eq!(transition, "1970-01-01T00:00:00Z");
        assert_eq!(report.written(&ready, at(300)), None);
        let failing = Readiness::NotReady("no runtime".to_owned());
        let third = report.due(&settings, &failing, at(310)).unwrap();
        assert_eq!(ready_times(&third).1, "1970-01-01T00:05:10Z");
        assert_eq!(report.written(&failing, at(310)), Some(false));
    }

    #[test]
    fn an_adopted_node_keeps_its_transition_times() {
        let node: Node = serde_json::from_value(json!({
            "status": {"conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"},
                {"type": "Custom", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"},
            ]}
        }))
        .unwrap();
        let mut report = StatusReport::new(Duration::from_mins(5));
        report.adopt(&node);
        let status = report.due(&settings(), &Readiness::Ready, at(5)).unwrap();
        assert_eq!(ready_times(&status).1, "2020-01-01T00:00:00Z");
        let types = status["conditions"].as_array().unwrap().iter();
        assert!(types.clone().all(|one| one["type"] != "Custom"));
        assert_eq!(types.count(), 5);
    }
}
