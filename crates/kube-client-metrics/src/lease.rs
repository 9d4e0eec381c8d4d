//! `leader_election_*`: whether this process leads, and an elector that tells it.
//!
//! kube has no leader election. Whoever uses an elector from elsewhere tells a [`Standing`] what it
//! does. [`Elector`] (feature `lease`) is a small one by client-go's rules that tells it by itself:
//!
#![cfg_attr(feature = "lease", doc = "```no_run")]
#![cfg_attr(not(feature = "lease"), doc = "```ignore")]
//! use kube_client_metrics::Hooks;
//! use kube_client_metrics::lease::{Election, Elector, LeaseError};
//!
//! # async fn work() {}
//! # async fn run(client: kube::Client, hooks: &Hooks) -> Result<(), LeaseError> {
//! let election = Election::new("kube-system", "my-controller", "pod-name_uid");
//! let mut elector = Elector::new(client, election, hooks)?;
//! elector.acquire().await;
//! tokio::select! {
//!     () = elector.hold() => {} // The lease is lost: stop at once, another may lead.
//!     () = work() => elector.release().await,
//! }
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "lease")]
mod election;
#[cfg(feature = "lease")]
mod elector;

use std::fmt;
use std::sync::Arc;

#[cfg(feature = "lease")]
pub use election::{Election, LeaseError};
#[cfg(feature = "lease")]
pub use elector::Elector;

use crate::hooks::{Hooks, LeaderElection};

/// Whether this process leads, as an elector knows it. Dropped, it no longer leads.
pub struct Standing {
    name: String,
    hook: Arc<dyn LeaderElection>,
}

impl Standing {
    /// For the lease of this name, which is the value of the label `name`. Until told otherwise
    /// another process leads.
    pub fn new(name: impl Into<String>, hooks: &Hooks) -> Self {
        let name = name.into();
        let hook = Arc::clone(&hooks.leader_election);
        hook.off(&name);
        Self { name, hook }
    }

    /// This process leads from now on.
    pub fn won(&self) {
        self.hook.on(&self.name);
    }

    /// This process no longer leads.
    pub fn lost(&self) {
        self.hook.off(&self.name);
    }

    /// The lease had to be read before it could be renewed: what was remembered of it was not
    /// enough.
    pub fn took_slow_path(&self) {
        self.hook.slowpath_exercised(&self.name);
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.lost();
    }
}

impl fmt::Debug for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Standing")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
