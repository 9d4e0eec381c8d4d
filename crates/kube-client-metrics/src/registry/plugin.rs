//! Exec plugins and client certificates.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use super::family::{Descriptor, Family};
use super::labels::{Fixed, NameAnd};
use super::metric::{Counter, Histogram};
use super::{Kind, MetricFamily, Registry, Series, Value, buckets};
use crate::hooks::{ClientCertExpiry, ClientCertRotationAge, ExecCallStatus, ExecPluginCalls};

/// client-go's families of exec plugins.
#[derive(Debug)]
pub(crate) struct Plugin {
    expiry: Mutex<Expiry>,
    rotation_age: Family<Fixed<0>, Histogram>,
    calls: Family<NameAnd<Arc<str>>, Counter>,
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
        }
    }

    pub(crate) fn gather(&self, families: &mut Vec<MetricFamily>) {
        let expiry = *self.expiry.lock();
        let ttl = match expiry {
            Expiry::Untold => None,
            Expiry::Never => Some(f64::INFINITY),
            Expiry::At(at) => Some(seconds_until(at, SystemTime::now())),
        };
        if let Some(ttl) = ttl {
            families.push(MetricFamily {
                name: "rest_client_exec_plugin_ttl_seconds",
                help: "Gauge of the shortest TTL (time-to-live) of the client certificate(s) managed by the auth exec \
                       plugin, negative if already expired, +INF if there is none",
                kind: Kind::Gauge,
                series: vec![Series {
                    labels: Vec::new(),
                    value: Value::Gauge(ttl),
                }],
            });
        }
        self.rotation_age.gather(families);
        self.calls.gather(families);
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

fn seconds_until(at: SystemTime, now: SystemTime) -> f64 {
    match at.duration_since(now) {
        Ok(left) => left.as_secs_f64(),
        Err(past) => -past.duration().as_secs_f64(),
    }
}
