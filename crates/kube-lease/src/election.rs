//! The parameters of an election.

use std::time::Duration;

/// The renew deadline must be longer than this many retry periods, as in client-go: the longest
/// jittered wait must fit.
const JITTER: f64 = 1.2;

/// The Lease that candidates compete for, the identity of this one, and the durations.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Election {
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name of the Lease, also in metrics.
    pub name: String,
    /// The identity of this candidate, unique among all processes.
    pub identity: String,
    /// The time after which a lease that was not observed to be renewed may be acquired by another
    /// candidate. Whole seconds.
    pub lease_duration: Duration,
    /// The time after which a leader that could not renew stops leading. Shorter than the lease
    /// duration, so that it stops before another candidate starts.
    pub renew_deadline: Duration,
    /// The time between two attempts.
    pub retry_period: Duration,
}

/// Invalid parameters of an election.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// Without an identity, a candidate could not distinguish its own lease from a released one.
    #[error("the identity of the candidate for lease {lease} is empty")]
    NoIdentity {
        /// The name of the Lease.
        lease: String,
    },
    /// A Lease holds its duration in seconds.
    #[error(
        "lease duration {given:?} is not a number of whole seconds from 1 to {}",
        i32::MAX
    )]
    LeaseDuration {
        /// The value given.
        given: Duration,
    },
    /// The leader would notice too late that it no longer leads.
    #[error("renew deadline {deadline:?} is not shorter than the lease duration {lease:?}")]
    RenewDeadline {
        /// The value given.
        deadline: Duration,
        /// The lease duration.
        lease: Duration,
    },
    /// There would be no second attempt.
    #[error(
        "retry period {retry:?} is zero, or {JITTER} times it exceeds the renew deadline {deadline:?}"
    )]
    RetryPeriod {
        /// The value given.
        retry: Duration,
        /// The renew deadline.
        deadline: Duration,
    },
}

impl Election {
    /// An election with the durations of Kubernetes' own components: 15 s, 10 s and 2 s.
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

    /// Checks that these durations allow exactly one leader. [`Elector::new`](crate::Elector::new)
    /// checks it too.
    pub fn validate(&self) -> Result<(), LeaseError> {
        self.lease_seconds().map(drop)
    }

    /// Validates the parameters and returns the lease duration in seconds.
    pub(crate) fn lease_seconds(&self) -> Result<i32, LeaseError> {
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

    /// Returns the wait before the next attempt to acquire the lease, for a random number from 0 to
    /// 1, so that candidates do not retry at the same time.
    pub(crate) fn jittered_retry(&self, random: f64) -> Duration {
        self.retry_period
            .mul_f64(1.0 + JITTER * random.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_that_would_allow_two_leaders_are_rejected() {
        let secs = Duration::from_secs;
        let election = |lease, deadline, retry| Election {
            lease_duration: lease,
            renew_deadline: deadline,
            retry_period: retry,
            ..Election::new("default", "it", "me")
        };
        assert_eq!(Election::new("default", "it", "me").lease_seconds(), Ok(15));
        assert!(matches!(
            Election::new("default", "it", "").validate(),
            Err(LeaseError::NoIdentity { .. })
        ));
        for lease in [Duration::ZERO, Duration::from_millis(1_500), secs(1 << 40)] {
            assert_eq!(
                election(lease, Duration::from_millis(5), Duration::from_millis(1)).validate(),
                Err(LeaseError::LeaseDuration { given: lease })
            );
        }
        assert!(matches!(
            election(secs(10), secs(10), secs(1)).validate(),
            Err(LeaseError::RenewDeadline { .. })
        ));
        for retry in [Duration::ZERO, secs(5)] {
            assert!(matches!(
                election(secs(10), secs(6), retry).validate(),
                Err(LeaseError::RetryPeriod { .. })
            ));
        }
    }

    #[test]
    fn retries_are_jittered_as_in_client_go() {
        let election = Election::new("default", "it", "me");
        assert_eq!(election.jittered_retry(0.0), Duration::from_secs(2));
        assert_eq!(election.jittered_retry(1.0), Duration::from_millis(4_400));
    }
}
