//! The facts of lists and watches.
//!
//! client-go declares them (`cache.MetricsProvider`) and nothing in it calls them any more;
//! component-base has no family for them. So the families have names of our own,
//! `kube_client_reflector_*`, with the name of the reflector as their one label.
//!
//! A list+watch that is written by hand says [`Reflector::list`] and [`Reflector::watch`] where it
//! begins one.
#![cfg_attr(
    feature = "runtime",
    doc = "kube-runtime's `watcher` opens a new watch whenever one ends and says nothing of it, so it is seen from two sides: \
           [`Reflector::observe`] sees the lists in its stream, [`Reflector::client`] the watches in its requests."
)]

#[cfg(feature = "runtime")]
mod stream;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[cfg(feature = "runtime")]
pub use stream::Observed;

use crate::hooks::{Hooks, ReflectorMetrics};

/// A watch that ended sooner and brought nothing is a short one, as in client-go.
const SHORT: Duration = Duration::from_secs(1);

/// Tells the lists and watches of one kind of objects. Clones tell of the same.
#[derive(Clone)]
pub struct Reflector {
    metrics: Arc<dyn ReflectorMetrics>,
}

/// A list that has begun. Dropped before it is [complete](Listing::complete), it failed.
#[must_use = "a list that is dropped has failed"]
pub struct Listing {
    metrics: Arc<dyn ReflectorMetrics>,
    begun: Instant,
}

/// A watch that is open; it ends when this is dropped.
#[must_use = "a watch that is dropped has ended"]
pub struct Watching {
    metrics: Arc<dyn ReflectorMetrics>,
    begun: Instant,
    events: u64,
}

impl Reflector {
    /// A reflector of this name, which is the value of the label `name`: one of a few that the
    /// program knows.
    pub fn new(name: &str, hooks: &Hooks) -> Self {
        Self {
            metrics: hooks.reflectors.reflector(name),
        }
    }

    /// A list begins.
    pub fn list(&self) -> Listing {
        self.metrics.list_started();
        Listing {
            metrics: Arc::clone(&self.metrics),
            begun: Instant::now(),
        }
    }

    /// A watch was answered.
    pub fn watch(&self) -> Watching {
        self.metrics.watch_started();
        Watching {
            metrics: Arc::clone(&self.metrics),
            begun: Instant::now(),
            events: 0,
        }
    }

    /// Up to where everything has been seen. A version that is no number is not told: nothing could
    /// be compared with it.
    pub fn seen(&self, resource_version: &str) {
        if let Ok(version) = resource_version.parse() {
            self.metrics.last_resource_version(version);
        }
    }
}

impl Listing {
    /// The list is complete, with so many objects.
    pub fn complete(self, items: u64) {
        self.metrics.list_finished(self.begun.elapsed(), items);
    }
}

impl Watching {
    /// So many further events came.
    pub fn received(&mut self, events: u64) {
        self.events = self.events.saturating_add(events);
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        tell_watch(&*self.metrics, self.begun.elapsed(), self.events);
    }
}

fn tell_watch(metrics: &dyn ReflectorMetrics, lasted: Duration, events: u64) {
    metrics.watch_finished(lasted, events, lasted < SHORT && events == 0);
}

impl fmt::Debug for Reflector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflector").finish_non_exhaustive()
    }
}

impl fmt::Debug for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let begun = &self.begun;
        f.debug_struct("Listing")
            .field("begun", begun)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Watching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watching")
            .field("begun", &self.begun)
            .field("events", &self.events)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
