//! Settings of leader election, of roles of which one replica works and the others stand by.

use std::time::Duration;

use kube_lease::Election;
use kubevitals_cli::InvalidSetting;
use kubevitals_model::GoDuration;

/// The Lease that replicas compete for, and the durations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeaseSettings {
    name: String,
    /// `None` for the namespace of the role.
    namespace: Option<String>,
    lease_duration: Duration,
    renew_deadline: Duration,
    retry_period: Duration,
}

/// The durations as flags have them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaseFlags {
    pub(crate) lease_duration: GoDuration,
    pub(crate) renew_deadline: GoDuration,
    pub(crate) retry_period: GoDuration,
}

impl LeaseSettings {
    pub(crate) fn new(
        name: String,
        namespace: Option<String>,
        flags: LeaseFlags,
    ) -> Result<Self, InvalidSetting> {
        let duration = |flag, given: GoDuration| {
            Duration::try_from(given).map_err(|_| InvalidSetting {
                flag,
                value: given.to_string(),
                problem: "it must not be negative".to_owned(),
                advice: "use a duration such as 15s".to_owned(),
            })
        };
        let settings = Self {
            name,
            namespace,
            lease_duration: duration("leader-elect-lease-duration", flags.lease_duration)?,
            renew_deadline: duration("leader-elect-renew-deadline", flags.renew_deadline)?,
            retry_period: duration("leader-elect-retry-period", flags.retry_period)?,
        };
        let problem = settings
            .election("default", "somebody".to_owned())
            .validate();
        problem.map_err(|error| InvalidSetting {
            flag: "leader-elect",
            value: "true".to_owned(),
            problem: error.to_string(),
            advice: "use 15s, 10s and 2s for lease duration, renew deadline and retry period, or similar proportions"
                .to_owned(),
        })?;
        Ok(settings)
    }

    /// The election for a candidate.
    pub(crate) fn election(&self, default_namespace: &str, identity: String) -> Election {
        let namespace = self.namespace.as_deref().unwrap_or(default_namespace);
        let mut election = Election::new(namespace, &self.name, identity);
        election.lease_duration = self.lease_duration;
        election.renew_deadline = self.renew_deadline;
        election.retry_period = self.retry_period;
        election
    }
}
