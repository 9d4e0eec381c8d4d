//! Metrics of lists, watches and stores.
//!
//! client-go declares them (`cache.MetricsProvider`) but no longer calls them, and component-base
//! has no families for them. So the families have names of our own, `kube_client_reflector_*`, with
//! the name of the reflector as their only label.
//!
//! A hand-written list+watch calls [`Reflector::list`] and [`Reflector::watch`] when it starts one.
#![cfg_attr(
    feature = "runtime",
    doc = "kube-runtime's `watcher` does not expose when it opens a new watch, so it is observed from two sides: \
           [`Reflector::observe`] recognizes lists in its stream, [`Reflector::client`] watches in its requests.\n\n\
           The store behind it is that of client-go's informers: [`Informer`] reports `informer_*`."
)]

#[cfg(feature = "runtime")]
mod informer;
#[cfg(feature = "runtime")]
mod stream;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[cfg(feature = "runtime")]
pub use informer::{Informer, ObservedStore};
#[cfg(feature = "runtime")]
pub use stream::Observed;

use crate::hooks::{Hooks, ReflectorMetrics};

/// A watch that ended sooner without events is a short one, as in client-go.
const SHORT_WATCH: Duration = Duration::from_secs(1);

/// Reports the lists and watches of one kind of object. Clones share the metrics.
#[derive(Clone)]
pub struct Reflector {
    metrics: Arc<dyn ReflectorMetrics>,
}

/// A list in progress. Dropping it before it is [complete](Listing::complete) means that it failed.
#[must_use = "dropping a list means that it failed"]
pub struct Listing {
    metrics: Arc<dyn ReflectorMetrics>,
    started: Instant,
}

/// An open watch, which ends when this is dropped.
#[must_use = "dropping a watch means that it ended"]
pub struct Watching {
    metrics: Arc<dyn ReflectorMetrics>,
    started: Instant,
    events: u64,
}

impl Reflector {
    /// Creates a reflector. `name` is the value of the label `name` and must come from the program,
    /// not from the cluster.
    pub fn new(name: &str, hooks: &Hooks) -> Self {
        Self {
            metrics: hooks.reflectors.reflector(name),
        }
    }

    /// Reports the start of a list.
    pub fn list(&self) -> Listing {
        self.metrics.list_started();
        Listing {
            metrics: Arc::clone(&self.metrics),
            started: Instant::now(),
        }
    }

    /// Reports the start of a watch, when its response arrives.
    pub fn watch(&self) -> Watching {
        self.metrics.watch_started();
        Watching {
            metrics: Arc::clone(&self.metrics),
            started: Instant::now(),
            events: 0,
        }
    }

    /// Reports the last observed resource version. A version that is not a number is ignored.
    pub fn seen(&self, resource_version: &str) {
        if let Ok(version) = resource_version.parse() {
            self.metrics.last_resource_version(version);
        }
    }
}

impl Listing {
    /// Reports the end of the list with its number of objects.
    pub fn complete(self, items: u64) {
        self.metrics.list_finished(self.started.elapsed(), items);
    }
}

impl Watching {
    /// Adds events.
    pub fn received(&mut self, events: u64) {
        self.events = self.events.saturating_add(events);
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        report_watch(&*self.metrics, self.started.elapsed(), self.events);
    }
}

fn report_watch(metrics: &dyn ReflectorMetrics, duration: Duration, events: u64) {
    metrics.watch_finished(duration, events, duration < SHORT_WATCH && events == 0);
}

impl fmt::Debug for Reflector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflector").finish_non_exhaustive()
    }
}

impl fmt::Debug for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let started = &self.started;
        f.debug_struct("Listing")
            .field("started", started)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Watching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watching")
            .field("started", &self.started)
            .field("events", &self.events)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
