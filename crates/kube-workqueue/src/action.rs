//! The result of a reconciliation.

use std::time::Duration;

use kube::runtime::controller;

use crate::ledger::Requeue;

/// The result of a reconciliation: kube's `Action` with a delay that can be read.
///
/// Converts from kube's own, without its delay: see [limits](crate#limits).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    action: controller::Action,
    requeue: Requeue,
}

impl Action {
    /// Reconciles the object again after this time, or sooner if it changes.
    #[must_use]
    pub fn requeue(delay: Duration) -> Self {
        Self {
            action: controller::Action::requeue(delay),
            requeue: Requeue::After(delay),
        }
    }

    /// Reconciles the object again when it changes.
    #[must_use]
    pub fn await_change() -> Self {
        Self {
            action: controller::Action::await_change(),
            requeue: Requeue::OnChange,
        }
    }

    pub(crate) fn requeue_after(&self) -> Requeue {
        self.requeue
    }
}

impl From<controller::Action> for Action {
    fn from(action: controller::Action) -> Self {
        let requeue = if action == controller::Action::await_change() {
            Requeue::OnChange
        } else {
            Requeue::AfterUnknownDelay
        };
        Self { action, requeue }
    }
}

impl From<Action> for controller::Action {
    fn from(action: Action) -> Self {
        action.action
    }
}
