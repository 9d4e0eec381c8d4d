//! What is stood for, by whom, and how patiently.

use std::time::Duration;

/// So much longer than a retry the time to renew must be, as in client-go: the longest jittered
/// wait must fit.
const JITTER: f64 = 1.2;

/// A lease that candidates compete for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Election {
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name of the Lease, also in metrics.
    pub name: String,
    /// Who stands for it: no two processes may have the same.
    pub identity: String,
    /// A lease that nobody was seen to renew for this long may be taken. Whole seconds.
    pub lease_duration: Duration,
    /// A leader that has not renewed for this long no longer leads. Shorter than the lease, so that
    /// it stops before another begins.
    pub renew_deadline: Duration,
    /// The time between two attempts.
    pub retry_period: Duration,
}

/// Why there is no elector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// A candidate without a name could not tell its lease from nobody's.
    #[error("the identity of the candidate for lease {lease} is empty")]
    NoIdentity {
        /// Which lease.
        lease: String,
    },
    /// Leases are written in seconds.
    #[error(
        "lease duration {given:?} is not a number of whole seconds from 1 to {}",
        i32::MAX
    )]
    LeaseDuration {
        /// What was given.
        given: Duration,
    },
    /// The leader would learn too late that it no longer leads.
    #[error("renew deadline {deadline:?} is not shorter than the lease duration {lease:?}")]
    RenewDeadline {
        /// What was given.
        deadline: Duration,
        /// What it must be below.
        lease: Duration,
    },
    /// There would be no second attempt.
    #[error(
        "retry period {retry:?} is zero, or {JITTER} of it do not fit into the renew deadline {deadline:?}"
    )]
    RetryPeriod {
        /// What was given.
        retry: Duration,
        /// What it must fit into.
        deadline: Duration,
    },
}

impl Election {
    /// With the times that Kubernetes' own components have: 15 s, 10 s and 2 s.
    pub fn new(
        namespace: impl Into<String>,
        name: impl Into<String>,
        identity: impl Into<String>,
    ) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }

    /// Whether these times would let two lead, or none. An elector checks it too.
    pub fn check(&self) -> Result<(), LeaseError> {
        self.seconds().map(drop)
    }

    /// Checks it; gives the lease duration in seconds.
    pub(super) fn seconds(&self) -> Result<i32, LeaseError> {
        if self.identity.is_empty() {
            return Err(LeaseError::NoIdentity {
                lease: self.name.clone(),
            });
        }
        let (lease, deadline, retry) =
            (self.lease_duration, self.renew_deadline, self.retry_period);
        let seconds = i32::try_from(lease.as_secs())
            .ok()
            .filter(|seconds| *seconds > 0 && lease.subsec_nanos() == 0)
            .ok_or(LeaseError::LeaseDuration { given: lease })?;
        if deadline >= lease {
            return Err(LeaseError::RenewDeadline { deadline, lease });
        }
        if retry.is_zero() || retry.as_secs_f64() * JITTER >= deadline.as_secs_f64() {
            return Err(LeaseError::RetryPeriod { retry, deadline });
        }
        Ok(seconds)
    }

    /// The wait before the next attempt to get the lease: longer by chance, so that candidates do
    /// not come at once.
    pub(super) fn jittered_retry(&self, chance: f64) -> Duration {
        self.retry_period
            .mul_f64(1.0 + JITTER * chance.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_would_let_two_lead_are_refused() {
        let secs = Duration::from_secs;
        let election = |lease, deadline, retry| Election {
            lease_duration: lease,
            renew_deadline: deadline,
            retry_period: retry,
            ..Election::new("default", "it", "me")
        };
        assert_eq!(Election::new("default", "it", "me").seconds(), Ok(15));
        assert!(matches!(
            Election::new("default", "it", "").check(),
            Err(LeaseError::NoIdentity { .. })
        ));
        for lease in [Duration::ZERO, Duration::from_millis(1_500), secs(1 << 40)] {
            assert_eq!(
                election(lease, Duration::from_millis(5), Duration::from_millis(1)).check(),
                Err(LeaseError::LeaseDuration { given: lease })
            );
        }
        assert!(matches!(
            election(secs(10), secs(10), secs(1)).check(),
            Err(LeaseError::RenewDeadline { .. })
        ));
        for retry in [Duration::ZERO, secs(5)] {
            assert!(matches!(
                election(secs(10), secs(6), retry).check(),
                Err(LeaseError::RetryPeriod { .. })
            ));
        }
    }

    #[test]
    fn retries_are_spread_as_in_client_go() {
        let election = Election::new("default", "it", "me");
        assert_eq!(election.jittered_retry(0.0), Duration::from_secs(2));
        assert_eq!(election.jittered_retry(1.0), Duration::from_millis(4_400));
    }
}
