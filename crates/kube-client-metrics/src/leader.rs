//! `leader_election_*`: whether this process leads.

use std::fmt;
use std::sync::Arc;

use crate::hooks::{Hooks, LeaderElection};

/// The leadership of this process for one lease, as an elector reports it.
///
/// kube has no leader election of its own; the crate `kube-lease` has an elector that reports to
/// this type. Dropping it reports that this process no longer leads.
pub struct LeaderStatus {
    name: String,
    hook: Arc<dyn LeaderElection>,
}

impl LeaderStatus {
    /// Reports that this process does not lead yet. `name` is the name of the lease and the value
    /// of the label `name`.
    pub fn new(name: impl Into<String>, hooks: &Hooks) -> Self {
        let name = name.into();
        let hook = Arc::clone(&hooks.leader_election);
        hook.off(&name);
        Self { name, hook }
    }

    /// Reports that this process leads from now on.
    pub fn acquired(&self) {
        self.hook.on(&self.name);
    }

    /// Reports that this process no longer leads.
    pub fn lost(&self) {
        self.hook.off(&self.name);
    }

    /// Reports that the lease had to be read before it could be renewed, because the cached one was
    /// outdated.
    pub fn slow_path(&self) {
        self.hook.slowpath_exercised(&self.name);
    }
}

impl Drop for LeaderStatus {
    fn drop(&mut self) {
        self.lost();
    }
}

impl fmt::Debug for LeaderStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderStatus")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
