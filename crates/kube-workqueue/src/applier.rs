//! kube's `applier`, with its input and output observed.

use std::fmt::Debug;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::{Stream, TryFuture, TryStream, TryStreamExt as _};
use kube::Resource;
use kube::runtime::controller::{self, Config, ReconcileRequest, applier};
use kube::runtime::reflector::{Lookup, ObjectRef, Store};
use pin_project_lite::pin_project;
use tokio::time::Instant;

use crate::ledger::Key;
use crate::{Action, CloseOnDrop, QueueInner, WorkGuard, Workqueue, key_of};

/// An item of an applier's stream.
pub(crate) type Reconciled<K, E, Q> =
    Result<(ObjectRef<K>, controller::Action), controller::Error<E, Q>>;

/// A reconciler's future with its guard.
struct Reconciling<F> {
    future: F,
    work: Option<WorkGuard>,
}

pin_project! {
    /// The stream of an applier, which closes its queue when it ends or is dropped.
    struct Applied<S> {
        #[pin]
        stream: S,
        queue: Arc<QueueInner>,
        closing: Option<CloseOnDrop>,
        is_started: bool,
    }
}

impl Workqueue {
    /// [`kube::runtime::applier`] with this queue's metrics: the same arguments, the same stream.
    ///
    /// The stream must be polled on a tokio runtime. Its first poll spawns a task that reports
    /// unfinished work; it ends with the stream and the last of its work.
    pub fn applier<K, QueueStream, ReconcilerFut, Ctx, A>(
        self,
        mut reconciler: impl FnMut(Arc<K>, Arc<Ctx>) -> ReconcilerFut,
        error_policy: impl Fn(Arc<K>, &ReconcilerFut::Error, Arc<Ctx>) -> A,
        context: Arc<Ctx>,
        store: Store<K>,
        queue: QueueStream,
        config: Config,
    ) -> impl Stream<Item = Reconciled<K, ReconcilerFut::Error, QueueStream::Error>>
    where
        K: Clone + Resource + 'static,
        K::DynamicType: Debug + Eq + Hash + Clone + Unpin,
        ReconcilerFut: TryFuture + Unpin,
        ReconcilerFut::Ok: Into<Action>,
        ReconcilerFut::Error: std::error::Error + 'static,
        A: Into<Action>,
        QueueStream: TryStream,
        QueueStream::Ok: Into<ReconcileRequest<K>>,
        QueueStream::Error: std::error::Error + 'static,
    {
        let reconciler = move |object, context, work| Reconciling {
            future: reconciler(object, context),
            work: Some(work),
        };
        self.drive(reconciler, error_policy, context, store, queue, config)
    }

    /// The same for a reconciler that receives its guard and completes it.
    pub(crate) fn drive<K, QueueStream, Fut, E, Ctx, A>(
        self,
        mut reconciler: impl FnMut(Arc<K>, Arc<Ctx>, WorkGuard) -> Fut,
        error_policy: impl Fn(Arc<K>, &E, Arc<Ctx>) -> A,
        context: Arc<Ctx>,
        store: Store<K>,
        queue: QueueStream,
        config: Config,
    ) -> impl Stream<Item = Reconciled<K, E, QueueStream::Error>>
    where
        K: Clone + Resource + 'static,
        K::DynamicType: Debug + Eq + Hash + Clone + Unpin,
        Fut: Future<Output = Result<controller::Action, E>> + Unpin,
        E: std::error::Error + 'static,
        A: Into<Action>,
        QueueStream: TryStream,
        QueueStream::Ok: Into<ReconcileRequest<K>>,
        QueueStream::Error: std::error::Error + 'static,
    {
        let inner = self.inner;
        let triggered = Arc::clone(&inner);
        let queue = queue.map_ok(move |request| {
            let request: ReconcileRequest<K> = request.into();
            let key = key_of_reference(&request.obj_ref);
            triggered.ledger.lock().trigger(key, Instant::now());
            request
        });
        let started = Arc::clone(&inner);
        let reconciler = move |object: Arc<K>, context| {
            let work = started.start_reconciler(key_of(&*object));
            reconciler(object, context, work)
        };
        let failed = Arc::clone(&inner);
        let error_policy = move |object: Arc<K>, error: &E, context| {
            let key = key_of(&*object);
            let action: Action = error_policy(object, error, context).into();
            failed.requeue(key, action.requeue_after());
            action.into()
        };
        Applied {
            stream: applier(reconciler, error_policy, context, store, queue, config),
            closing: Some(CloseOnDrop(Arc::clone(&inner))),
            queue: inner,
            is_started: false,
        }
    }
}

impl<F> Future for Reconciling<F>
where
    F: TryFuture + Unpin,
    F::Ok: Into<Action>,
{
    type Output = Result<controller::Action, F::Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let result = ready!(Pin::new(&mut self.future).try_poll(context));
        let work = self
            .work
            .take()
            .expect("a future is not polled after completion");
        Poll::Ready(work.complete(result))
    }
}

impl<S, K, E, Q> Stream for Applied<S>
where
    S: Stream<Item = Reconciled<K, E, Q>>,
    K: Resource,
    E: 'static,
    Q: 'static,
{
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.project();
        if !*this.is_started {
            *this.is_started = true;
            tokio::spawn(Arc::clone(this.queue).run_updates());
        }
        let item = ready!(this.stream.poll_next(context));
        match &item {
            None => *this.closing = None,
            Some(Err(controller::Error::ObjectNotFound(reference))) => {
                drop(this.queue.start(key_of_reference(reference)));
            }
            Some(_) => {}
        }
        Poll::Ready(item)
    }
}

fn key_of_reference<K: Lookup>(reference: &ObjectRef<K>) -> Key {
    Key {
        name: reference.name.clone(),
        namespace: reference.namespace.clone(),
    }
}
