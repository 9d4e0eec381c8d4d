//! A reconciler of kube's `Controller`, observed.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use kube::runtime::controller::Action;
use pin_project_lite::pin_project;

use super::{ControllerObserver, Reconciling};
use crate::hooks::ReconcileResult;

pin_project! {
    /// The future of an observed reconciler. See [`ControllerObserver::reconciler`].
    pub struct ObservedReconcile<F> {
        #[pin]
        inner: F,
        // Taken when it returns.
        reconciling: Option<Reconciling>,
    }
}

impl ControllerObserver {
    /// Wraps the reconciler of a [`Controller`](kube::runtime::Controller): the same function, and
    /// its reconciliations are reported.
    pub fn reconciler<K, Ctx, F>(
        &self,
        mut reconciler: impl FnMut(Arc<K>, Arc<Ctx>) -> F,
    ) -> impl FnMut(Arc<K>, Arc<Ctx>) -> ObservedReconcile<F> {
        let observer = self.clone();
        move |object, context| ObservedReconcile {
            reconciling: Some(observer.start()),
            inner: reconciler(object, context),
        }
    }
}

impl ReconcileResult {
    /// Returns the result of a reconciliation. The delay of an action cannot be read, but it can be
    /// told from none.
    pub fn of<E>(result: &Result<Action, E>) -> Self {
        match result {
            Ok(action) if *action == Action::await_change() => Self::Success,
            Ok(_) => Self::RequeueAfter,
            Err(_) => Self::Error,
        }
    }
}

impl<F, E> Future for ObservedReconcile<F>
where
    F: Future<Output = Result<Action, E>>,
{
    type Output = Result<Action, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = ready!(this.inner.poll(context));
        if let Some(reconciling) = this.reconciling.take() {
            reconciling.finish(ReconcileResult::of(&result));
        }
        Poll::Ready(result)
    }
}

impl<F> fmt::Debug for ObservedReconcile<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObservedReconcile").finish_non_exhaustive()
    }
}
