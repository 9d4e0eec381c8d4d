//! The event loop of `kubevitals transitions`.
//!
//! ```text
//! watch: pods ────subscription──┐                                     ┌─► JSON lines ──thread──► standard output
//!                               ├─► event loop: the tracker ──records─┤
//! watch: events ────────────────┘   (one task owns it)                └─► metrics
//! ```
//!
//! There are two watches, however many pods there are. Both queues are bounded: when the pod queue
//! overflows, the loop resynchronizes from the cache, and a full event queue blocks the watch.
//!
//! With leader election every replica tracks all pods and only the leader emits ([`LeaseClient`]).

mod checks;
mod emitter;
mod event_loop;
mod leader_state;
mod metrics;
mod pod_metrics;
mod run;
mod version_order;

use kube_client_metrics::Hooks;
use kube_lease::Election;
use kubevitals_model::{Event, Node, Pod};
use kubevitals_watch::{EventWatcher, Reflector};

pub use emitter::RecordHook;
pub use run::{Deps, Registered, TransitionsConfig, run};

use self::metrics::Observer;

/// The watches that the role reads. Another role of the process may share them.
pub struct Watches {
    pub pods: Reflector<Pod>,
    /// `None` if events are not watched.
    pub events: Option<EventWatcher<Event>>,
    /// Nodes, for metrics labeled by node pool or zone.
    pub nodes: Option<Reflector<Node>>,
}

/// Access to the Lease of an election.
pub struct LeaseClient {
    pub client: kube::Client,
    pub hooks: Hooks,
    pub election: Election,
}

impl Watches {
    fn observe_pods(&self) -> Observer {
        Box::new(self.pods.observer())
    }

    fn observe_events(&self) -> Option<Observer> {
        let events = self.events.as_ref()?;
        Some(Box::new(events.observer()))
    }
}
