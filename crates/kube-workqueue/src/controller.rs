//! kube's `Controller`, with its trigger stream accessible.

use std::fmt::{self, Debug};
use std::hash::Hash;
use std::sync::Arc;

use futures_util::future::{self, BoxFuture};
use futures_util::stream::{self, BoxStream, SelectAll};
use futures_util::{FutureExt as _, Stream, StreamExt as _, TryFuture, TryFutureExt};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::controller::{Config, ReconcileReason, ReconcileRequest, trigger_self};
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store, reflector};
use kube::runtime::utils::{Backoff, CancelableJoinHandle, StreamBackoff};
use kube::runtime::watcher::{self, DefaultBackoff, watcher};
use kube::{Api, Resource};
use kube_client_metrics::Hooks;
use kube_client_metrics::reflector::Reflector;
use serde::de::DeserializeOwned;
use tokio::runtime::Handle;
use tracing::Instrument as _;

use crate::applier::Reconciled;
use crate::{Action, Workqueue};

mod signal;
mod streams;

type Triggers<K> = SelectAll<BoxStream<'static, Result<ReconcileRequest<K>, watcher::Error>>>;

/// A controller with a named, instrumented queue, otherwise like kube's
/// [`Controller`](kube::runtime::Controller).
///
/// Each reconciliation is a task of its own, and no two of the same object run at once. The methods
/// are those of kube, with the ones from streams that are unstable there.
/// [`Controller::triggered_by`] takes any triggers.
#[must_use = "a controller does nothing until it is run and its stream is polled"]
pub struct Controller<K>
where
    K: Clone + Resource + Debug + 'static,
    K::DynamicType: Eq + Hash,
{
    queue: Workqueue,
    triggers: Triggers<K>,
    backoff: Box<dyn Backoff + Send>,
    shutdown: Vec<BoxFuture<'static, ()>>,
    forced_shutdown: Vec<BoxFuture<'static, ()>>,
    dyntype: K::DynamicType,
    store: Store<K>,
    config: Config,
}

impl<K> Controller<K>
where
    K: Clone + Resource + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    /// Creates a controller of the objects of `api`, with a queue of this name. Its lists are
    /// reported under the same name as a [reflector](kube_client_metrics::reflector), and so are
    /// its watches if the client of `api` is that reflector's.
    pub fn new(name: &str, hooks: &Hooks, api: Api<K>, config: watcher::Config) -> Self
    where
        K::DynamicType: Default,
    {
        Self::new_with(name, hooks, api, config, K::DynamicType::default())
    }

    /// Like [`new`](Self::new), for a type that is known only at run time.
    pub fn new_with(
        name: &str,
        hooks: &Hooks,
        api: Api<K>,
        config: watcher::Config,
        dyntype: K::DynamicType,
    ) -> Self {
        let writer = Writer::new(dyntype.clone());
        let store = writer.as_reader();
        let observed = Reflector::new(name, hooks).observe(watcher(api, config));
        let objects = reflector(writer, observed).applied_objects();
        Self::triggered_by(
            Workqueue::new(name, hooks),
            trigger_self(objects, dyntype.clone()),
            store,
            dyntype,
        )
    }

    /// Creates a controller of the objects in `store`, which the caller updates, that reconciles
    /// the objects of `triggers`.
    pub fn triggered_by(
        queue: Workqueue,
        triggers: impl Stream<Item = Result<ReconcileRequest<K>, watcher::Error>> + Send + 'static,
        store: Store<K>,
        dyntype: K::DynamicType,
    ) -> Self {
        Self {
            queue,
            triggers: SelectAll::from_iter([triggers.boxed()]),
            backoff: Box::<DefaultBackoff>::default(),
            // One that never completes, because `select_all` panics on an empty list.
            shutdown: vec![future::pending().boxed()],
            forced_shutdown: vec![future::pending().boxed()],
            dyntype,
            store,
            config: Config::default(),
        }
    }

    /// Sets the debounce time and the concurrency. kube does not tell the concurrency of a
    /// configuration: set it by [`concurrency`](Self::concurrency), and it is a metric too.
    pub fn with_config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Sets the maximum number of reconciliations at once and reports it. Zero is no limit.
    pub fn concurrency(mut self, limit: u16) -> Self {
        self.queue.inner.observer.limit(limit);
        self.config = self.config.concurrency(limit);
        self
    }

    /// Sets the backoff after errors of the watches.
    pub fn trigger_backoff(mut self, backoff: impl Backoff + 'static) -> Self {
        self.backoff = Box::new(backoff);
        self
    }

    /// Returns the cache of the objects.
    pub fn store(&self) -> Store<K> {
        self.store.clone()
    }

    /// Also reconciles an object when one that it owns changes.
    pub fn owns<Child>(self, api: Api<Child>, config: watcher::Config) -> Self
    where
        Child: Clone + Resource<DynamicType = ()> + DeserializeOwned + Debug + Send + 'static,
    {
        self.owns_with(api, (), config)
    }

    /// Like [`owns`](Self::owns), for a type that is known only at run time.
    pub fn owns_with<Child>(
        self,
        api: Api<Child>,
        dyntype: Child::DynamicType,
        config: watcher::Config,
    ) -> Self
    where
        Child: Clone + Resource + DeserializeOwned + Debug + Send + 'static,
        Child::DynamicType: Debug + Eq + Hash + Clone,
    {
        #[expect(
            deprecated,
            reason = "nothing else converts an Api of objects to one of their metadata"
        )]
        let children = kube::runtime::metadata_watcher(api, config).touched_objects();
        self.owns_stream_with(children, dyntype)
    }

    /// Also reconciles the objects that `mapper` returns when one of another kind changes.
    pub fn watches<Other, I>(
        self,
        api: Api<Other>,
        config: watcher::Config,
        mapper: impl Fn(Other) -> I + Sync + Send + 'static,
    ) -> Self
    where
        Other: Clone + Resource + DeserializeOwned + Debug + Send + 'static,
        Other::DynamicType: Default + Debug + Clone + Eq + Hash,
        I: 'static + IntoIterator<Item = ObjectRef<K>>,
        I::IntoIter: Send,
    {
        self.watches_with(api, Other::DynamicType::default(), config, mapper)
    }

    /// Like [`watches`](Self::watches), for a type that is known only at run time.
    pub fn watches_with<Other, I>(
        self,
        api: Api<Other>,
        dyntype: Other::DynamicType,
        config: watcher::Config,
        mapper: impl Fn(Other) -> I + Sync + Send + 'static,
    ) -> Self
    where
        Other: Clone + Resource + DeserializeOwned + Debug + Send + 'static,
        Other::DynamicType: Debug + Clone + Eq + Hash,
        I: 'static + IntoIterator<Item = ObjectRef<K>>,
        I::IntoIter: Send,
    {
        self.watches_stream_with(watcher(api, config).touched_objects(), mapper, dyntype)
    }

    /// Also reconciles all objects whenever `trigger` yields.
    pub fn reconcile_all_on(mut self, trigger: impl Stream<Item = ()> + Send + 'static) -> Self {
        let (store, dyntype) = (self.store(), self.dyntype.clone());
        let triggers = trigger.flat_map(move |()| {
            let dyntype = dyntype.clone();
            stream::iter(store.state()).map(move |object| {
                Ok(ReconcileRequest {
                    obj_ref: ObjectRef::from_obj_with(&*object, dyntype.clone()),
                    reason: ReconcileReason::BulkReconcile,
                })
            })
        });
        self.triggers.push(triggers.boxed());
        self
    }

    /// Also reconciles the objects that `trigger` yields.
    pub fn reconcile_on(
        mut self,
        trigger: impl Stream<Item = ObjectRef<K>> + Send + 'static,
    ) -> Self {
        self.triggers
            .push(trigger.map(|object| Ok(object.into())).boxed());
        self
    }

    /// Starts no further reconciliation once `trigger` completes. The stream ends when the running
    /// ones are done.
    pub fn graceful_shutdown_on(
        mut self,
        trigger: impl Future<Output = ()> + Send + Sync + 'static,
    ) -> Self {
        self.shutdown.push(trigger.boxed());
        self
    }

    /// Ends the stream once `trigger` completes. Reconciliations that run continue by themselves.
    pub(crate) fn forced_shutdown_on(
        mut self,
        trigger: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        self.forced_shutdown.push(trigger.boxed());
        self
    }

    /// Returns the stream that reconciles while it is polled, on a tokio runtime.
    pub fn run<ReconcilerFut, Ctx, A>(
        self,
        mut reconciler: impl FnMut(Arc<K>, Arc<Ctx>) -> ReconcilerFut,
        error_policy: impl Fn(Arc<K>, &ReconcilerFut::Error, Arc<Ctx>) -> A,
        context: Arc<Ctx>,
    ) -> impl Stream<Item = Reconciled<K, ReconcilerFut::Error, watcher::Error>>
    where
        K::DynamicType: Debug + Unpin,
        ReconcilerFut: TryFuture + Send + 'static,
        ReconcilerFut::Ok: Into<Action>,
        ReconcilerFut::Error: std::error::Error + Send + 'static,
        A: Into<Action>,
    {
        let triggers = StreamBackoff::new(self.triggers, self.backoff);
        let triggers = triggers.take_until(future::select_all(self.shutdown));
        let forced = future::select_all(self.forced_shutdown);
        let reconciled = self.queue.drive(
            move |object, context, work| {
                let reconciliation = TryFutureExt::into_future(reconciler(object, context));
                // The guard moves into the task: work ends when the task does, not when it is
                // polled.
                let task = async move { work.complete(reconciliation.await) };
                CancelableJoinHandle::spawn(task.in_current_span(), &Handle::current())
            },
            error_policy,
            context,
            self.store,
            triggers,
            self.config,
        );
        reconciled.take_until(forced)
    }
}

impl<K> Debug for Controller<K>
where
    K: Clone + Resource + Debug + 'static,
    K::DynamicType: Eq + Hash,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("queue", &self.queue)
            .field("triggers", &self.triggers.len())
            .finish_non_exhaustive()
    }
}
