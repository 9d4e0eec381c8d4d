//! What a reconciler wishes.

use std::time::Duration;

use kube::runtime::controller;

use super::ledger::Again;

/// What is to happen next with an object: kube's `Action` with a delay that can be read.
///
/// kube's own converts into it, without its delay: see [the module](super#what-kube-runtime-hides).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    action: controller::Action,
    again: Again,
}

impl Action {
    /// The object is looked at again after this time, or sooner if it changes.
    #[must_use]
    pub fn requeue(delay: Duration) -> Self {
        Self {
            action: controller::Action::requeue(delay),
            again: Again::After(delay),
        }
    }

    /// The object is looked at again when it changes.
    #[must_use]
    pub fn await_change() -> Self {
        Self {
            action: controller::Action::await_change(),
            again: Again::OnChange,
        }
    }

    pub(super) fn again(&self) -> Again {
        self.again
    }
}

impl From<controller::Action> for Action {
    fn from(action: controller::Action) -> Self {
        let again = if action == controller::Action::await_change() {
            Again::OnChange
        } else {
            Again::Sometime
        };
        Self { action, again }
    }
}

impl From<Action> for controller::Action {
    fn from(action: Action) -> Self {
        action.action
    }
}
