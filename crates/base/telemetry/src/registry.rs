//! The metric registry, passed down while the process is built and then only read.
//!
//! The binary makes one [`Metrics`], gives each crate a sub-registry with the crate's prefix, and
//! freezes it before the admin server starts. There is no global registry, so tests run side by side
//! and a crate's metrics exist only where the crate is used.

use std::sync::Arc;

pub use prometheus_client::registry::{Registry, Unit};

use crate::{
    BuildInfo, TelemetryError,
    exposition::{Format, family_names},
    process::ProcessCollector,
};

/// The registry while it is filled.
#[derive(Debug, Default)]
pub struct Metrics {
    root: Registry,
}

/// The registry once it is full. Clones share it.
#[derive(Clone, Debug)]
pub struct SharedRegistry {
    root: Arc<Registry>,
}

impl Metrics {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// The registry without a prefix, for families whose whole name is agreed elsewhere.
    pub fn root(&mut self) -> &mut Registry {
        &mut self.root
    }

    /// A sub-registry for one crate; `prefix` and an underscore go before every name in it.
    pub fn sub(&mut self, prefix: &str) -> &mut Registry {
        self.root.sub_registry_with_prefix(prefix)
    }

    /// Adds `process_*` and `kubevitals_build_info`, which every process has.
    #[must_use]
    pub fn with_process(mut self, build: &BuildInfo) -> Self {
        self.root
            .register_collector(Box::new(ProcessCollector::new()));
        build.register(self.sub("kubevitals"));
        self
    }

    /// Ends registration.
    pub fn freeze(self) -> SharedRegistry {
        SharedRegistry {
            root: Arc::new(self.root),
        }
    }
}

impl SharedRegistry {
    /// Reads all metrics now and writes them in the given form.
    pub fn encode(&self, format: Format) -> Result<Vec<u8>, TelemetryError> {
        Ok(format.render(&self.open_metrics()?))
    }

    /// Lists `type name` of all families that have a series, named as in the Prometheus form.
    ///
    /// For the test of each crate that keeps its metric names in a snapshot.
    pub fn families(&self) -> Result<Vec<String>, TelemetryError> {
        Ok(family_names(&self.open_metrics()?))
    }

    fn open_metrics(&self) -> Result<String, TelemetryError> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.root)
            .map_err(TelemetryError::Encode)?;
        Ok(text)
    }
}
