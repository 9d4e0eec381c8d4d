//! Exec plugins and client certificates.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;

use super::Registry;
use super::buckets;
use super::family::{Descriptor, Family};
use super::labels::{Fixed, NameAnd};
use crate::hooks::{
    ClientCertExpiry, ClientCertRotationAge, ExecCallStatus, ExecPluginCalls,
    ExecPluginPolicyCalls, PolicyVerdict,
};

/// client-go's families of exec plugins.
#[derive(Debug)]
pub(crate) struct Plugin {
    expiry: Mutex<Expiry>,
    rotation_age: Family<Fixed<0>, Histogram>,
    calls: Family<NameAnd<Arc<str>>, Counter>,
    policy_calls: Family<Fixed<1>, Counter>,
}

/// The last reported expiry of certificates.
#[derive(Clone, Copy, Debug)]
enum Expiry {
    Untold,
    /// There is no certificate.
    Never,
    At(SystemTime),
}

impl Plugin {
    pub(crate) fn new() -> Self {
        Self {
            expiry: Mutex::new(Expiry::Untold),
            rotation_age: Family::new(
                Descriptor {
                    name: "rest_client_exec_plugin_certificate_rotation_age",
                    help: "Histogram of the number of seconds the last auth exec plugin client certificate lived before \
                           being rotated",
                    labels: &[],
                },
                buckets::certificate_age,
            ),
            calls: Family::new(
                Descriptor {
                    name: "rest_client_exec_plugin_call",
                    help: "Number of calls to an exec plugin, partitioned by the exit code and the type of event \
                           encountered; the exit code is 0 if and only if the call was successful",
                    labels: &["code", "call_status"],
                },
                Counter::default,
            ),
            policy_calls: Family::new(
                Descriptor {
                    name: "kube_client_exec_plugin_policy_calls",
                    help: "Number of comparisons of an exec plugin to the plugin policy, partitioned by the verdict",
                    labels: &["verdict"],
                },
                Counter::default,
            ),
        }
    }

    pub(crate) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let expiry = *self.expiry.lock();
        let ttl = match expiry {
            Expiry::Untold => None,
            Expiry::Never => Some(f64::INFINITY),
            Expiry::At(at) => Some(seconds_until(at, SystemTime::now())),
        };
        if let Some(ttl) = ttl.map(ConstGauge::new) {
            ttl.encode(encoder.encode_descriptor(
                "rest_client_exec_plugin_ttl_seconds",
                "Gauge of the shortest TTL (time-to-live) of the client certificate(s) managed by the auth exec plugin, \
                 negative if already expired, +INF if there is none.",
                None,
                ttl.metric_type(),
            )?)?;
        }
        self.rotation_age.encode(encoder)?;
        self.calls.encode(encoder)?;
        self.policy_calls.encode(encoder)
    }
}

impl ClientCertExpiry for Registry {
    fn set(&self, expiry: Option<SystemTime>) {
        *self.plugin().expiry.lock() = expiry.map_or(Expiry::Never, Expiry::At);
    }
}

impl ClientCertRotationAge for Registry {
    fn observe(&self, age: Duration) {
        self.plugin()
            .rotation_age
            .with(&Fixed([]), |m| m.observe(age.as_secs_f64()));
    }
}

impl ExecPluginCalls for Registry {
    fn increment(&self, exit_code: i32, status: ExecCallStatus) {
        let code = exit_code.to_string();
        self.plugin()
            .calls
            .with(&NameAnd(code.as_str(), status.as_str()), |m| {
                m.inc();
            });
    }
}

impl ExecPluginPolicyCalls for Registry {
    fn increment(&self, verdict: PolicyVerdict) {
        self.plugin()
            .policy_calls
            .with(&Fixed([verdict.as_str()]), |m| {
                m.inc();
            });
    }
}

fn seconds_until(at: SystemTime, now: SystemTime) -> f64 {
    match at.duration_since(now) {
        Ok(left) => left.as_secs_f64(),
        Err(past) => -past.duration().as_secs_f64(),
    }
}
