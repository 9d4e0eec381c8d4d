//! The metrics of this crate itself.

use std::fmt;

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::RegistryExt;

/// Metrics of the admin server.
#[derive(Clone, Debug)]
pub struct AdminMetrics {
    requests: Family<RequestLabels, Counter>,
    pub(crate) connections: Gauge,
}

/// Labels of `kubevitals_build_info`.
#[derive(Clone, Debug, Default)]
pub struct BuildInfo {
    pub version: &'static str,
    /// The commit, if it was known at build time.
    pub revision: Option<&'static str>,
    /// The compiler, if it was known at build time.
    pub rustc: Option<&'static str>,
}

/// The part of the admin server that a request was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Route {
    Index,
    Livez,
    Readyz,
    Healthz,
    Metrics,
    LogLevel,
    Pprof,
    /// A page of a role.
    Page,
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: Route,
    /// Bounded by the handler, which answers with a dozen codes.
    code: u16,
}

impl AdminMetrics {
    /// Registers the metrics; `registry` has the prefix `kubevitals_admin`.
    pub fn register(registry: &mut Registry) -> Self {
        Self {
            requests: registry.family(
                "requests",
                "Total number of requests to the admin server by route and status code",
            ),
            connections: registry.gauge(
                "connections",
                "Number of open connections to the admin server",
            ),
        }
    }

    pub(crate) fn count(&self, route: Route, code: u16) {
        self.requests
            .get_or_create(&RequestLabels { route, code })
            .inc();
    }
}

impl Route {
    const fn name(self) -> &'static str {
        match self {
            Self::Index => "index",
            Self::Livez => "livez",
            Self::Readyz => "readyz",
            Self::Healthz => "healthz",
            Self::Metrics => "metrics",
            Self::LogLevel => "log_level",
            Self::Pprof => "pprof",
            Self::Page => "page",
            Self::Unknown => "unknown",
        }
    }
}

impl EncodeLabelValue for Route {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        EncodeLabelValue::encode(&self.name(), encoder)
    }
}

impl BuildInfo {
    /// Registers `build_info`; `registry` has the prefix `kubevitals`.
    pub fn register(&self, registry: &mut Registry) {
        let labels: Vec<(String, String)> = [
            ("version", Some(self.version)),
            ("revision", self.revision),
            ("rustc", self.rustc),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
        .collect();
        let build_info: Family<Vec<(String, String)>, Gauge> = registry.family(
            "build_info",
            "A metric with the constant value 1, labeled with the version of the program",
        );
        build_info.get_or_create(&labels).set(1);
    }
}
