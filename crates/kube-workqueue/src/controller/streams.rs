//! Controllers of streams that the program has: filtered ones, or shared with other controllers.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use futures_util::{Stream, StreamExt as _};
use kube::Resource;
use kube::runtime::controller::{ReconcileReason, ReconcileRequest, trigger_self, trigger_with};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use kube_client_metrics::Hooks;
use serde::de::DeserializeOwned;

use super::Controller;
use crate::Workqueue;

impl<K> Controller<K>
where
    K: Clone + Resource + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    /// Creates a controller of a stream of objects, which also updates `store`.
    pub fn for_stream(
        name: &str,
        hooks: &Hooks,
        objects: impl Stream<Item = Result<K, watcher::Error>> + Send + 'static,
        store: Store<K>,
    ) -> Self
    where
        K::DynamicType: Default,
    {
        Self::for_stream_with(name, hooks, objects, store, K::DynamicType::default())
    }

    /// Like [`for_stream`](Self::for_stream), for a type that is known only at run time.
    pub fn for_stream_with(
        name: &str,
        hooks: &Hooks,
        objects: impl Stream<Item = Result<K, watcher::Error>> + Send + 'static,
        store: Store<K>,
        dyntype: K::DynamicType,
    ) -> Self {
        Self::triggered_by(
            Workqueue::new(name, hooks),
            trigger_self(objects, dyntype.clone()),
            store,
            dyntype,
        )
    }

    /// Creates a controller of a stream that several share, a subscription of a store's writer.
    pub fn for_shared_stream(
        name: &str,
        hooks: &Hooks,
        objects: impl Stream<Item = Arc<K>> + Send + 'static,
        store: Store<K>,
    ) -> Self
    where
        K::DynamicType: Default,
    {
        Self::for_shared_stream_with(name, hooks, objects, store, K::DynamicType::default())
    }

    /// Like [`for_shared_stream`](Self::for_shared_stream), for a type that is known only at run
    /// time.
    pub fn for_shared_stream_with(
        name: &str,
        hooks: &Hooks,
        objects: impl Stream<Item = Arc<K>> + Send + 'static,
        store: Store<K>,
        dyntype: K::DynamicType,
    ) -> Self {
        let own = dyntype.clone();
        let triggers = objects.map(move |object| {
            Ok(ReconcileRequest {
                obj_ref: ObjectRef::from_obj_with(&*object, own.clone()),
                reason: ReconcileReason::ObjectUpdated,
            })
        });
        Self::triggered_by(Workqueue::new(name, hooks), triggers, store, dyntype)
    }

    /// Also reconciles the owners of the objects of a stream.
    pub fn owns_stream<Child>(
        self,
        children: impl Stream<Item = Result<Child, watcher::Error>> + Send + 'static,
    ) -> Self
    where
        Child: Resource<DynamicType = ()> + Send + 'static,
    {
        self.owns_stream_with(children, ())
    }

    /// Like [`owns_stream`](Self::owns_stream), for a type that is known only at run time.
    pub fn owns_stream_with<Child>(
        mut self,
        children: impl Stream<Item = Result<Child, watcher::Error>> + Send + 'static,
        dyntype: Child::DynamicType,
    ) -> Self
    where
        Child: Resource + Send + 'static,
        Child::DynamicType: Debug + Eq + Hash + Clone,
    {
        let owner_type = self.dyntype.clone();
        let triggers = trigger_with(children, move |child: Child| {
            owners_of::<K, Child>(&child, &owner_type, &dyntype)
        });
        self.triggers.push(triggers.boxed());
        self
    }

    /// Also reconciles the owners of the objects of a stream that several share.
    pub fn owns_shared_stream<Child>(
        self,
        children: impl Stream<Item = Arc<Child>> + Send + 'static,
    ) -> Self
    where
        Child: Resource<DynamicType = ()> + Send + Sync + 'static,
    {
        self.owns_shared_stream_with(children, ())
    }

    /// Like [`owns_shared_stream`](Self::owns_shared_stream), for a type that is known only at run
    /// time.
    pub fn owns_shared_stream_with<Child>(
        mut self,
        children: impl Stream<Item = Arc<Child>> + Send + 'static,
        dyntype: Child::DynamicType,
    ) -> Self
    where
        Child: Resource + Send + Sync + 'static,
        Child::DynamicType: Debug + Eq + Hash + Clone,
    {
        let owner_type = self.dyntype.clone();
        let triggers = trigger_with(children.map(Ok), move |child: Arc<Child>| {
            owners_of::<K, Child>(&child, &owner_type, &dyntype)
        });
        self.triggers.push(triggers.boxed());
        self
    }

    /// Also reconciles the objects that `mapper` returns for those of a stream.
    pub fn watches_stream<Other, I>(
        self,
        others: impl Stream<Item = Result<Other, watcher::Error>> + Send + 'static,
        mapper: impl Fn(Other) -> I + Sync + Send + 'static,
    ) -> Self
    where
        Other: Resource + Send + 'static,
        Other::DynamicType: Default + Debug + Clone + Eq + Hash,
        I: 'static + IntoIterator<Item = ObjectRef<K>>,
        I::IntoIter: Send,
    {
        self.watches_stream_with(others, mapper, Other::DynamicType::default())
    }

    /// Like [`watches_stream`](Self::watches_stream), for a type that is known only at run time.
    pub fn watches_stream_with<Other, I>(
        mut self,
        others: impl Stream<Item = Result<Other, watcher::Error>> + Send + 'static,
        mapper: impl Fn(Other) -> I + Sync + Send + 'static,
        dyntype: Other::DynamicType,
    ) -> Self
    where
        Other: Resource + Send + 'static,
        Other::DynamicType: Debug + Clone + Eq + Hash,
        I: 'static + IntoIterator<Item = ObjectRef<K>>,
        I::IntoIter: Send,
    {
        let triggers = trigger_with(others, move |other: Other| {
            let related = ObjectRef::from_obj_with(&other, dyntype.clone()).erase();
            related_to(related, mapper(other))
        });
        self.triggers.push(triggers.boxed());
        self
    }

    /// Also reconciles the objects that `mapper` returns for those of a stream that several share.
    pub fn watches_shared_stream<Other, I>(
        self,
        others: impl Stream<Item = Arc<Other>> + Send + 'static,
        mapper: impl Fn(Arc<Other>) -> I + Sync + Send + 'static,
    ) -> Self
    where
        Other: Resource + Send + Sync + 'static,
        Other::DynamicType: Default + Debug + Clone + Eq + Hash,
        I: 'static + IntoIterator<Item = ObjectRef<K>>,
        I::IntoIter: Send,
    {
        self.watches_shared_stream_with(others, mapper, Other::DynamicType::default())
    }

    /// Like [`watches_shared_stream`](Self::watches_shared_stream), for a type that is known only
    /// at run time.
    pub fn watches_shared_stream_with<Other, I>(
        mut self,
        others: impl Stream<Item = Arc<Other>> + Send + 'static,
        mapper: impl Fn(Arc<Other>) -> I + Sync + Send + 'static,
        dyntype: Other::DynamicType,
    ) -> Self
    where
        Other: Resource + Send + Sync + 'static,
        Other::DynamicType: Debug + Clone + Eq + Hash,
        I: 'static + IntoIterator<Item = ObjectRef<K>>,
        I::IntoIter: Send,
    {
        let triggers = trigger_with(others.map(Ok), move |other: Arc<Other>| {
            let related = ObjectRef::from_obj_with(&*other, dyntype.clone()).erase();
            related_to(related, mapper(other))
        });
        self.triggers.push(triggers.boxed());
        self
    }
}

/// The owners of an object that are of the controller's type.
fn owners_of<K, Child>(
    child: &Child,
    owner_type: &K::DynamicType,
    child_type: &Child::DynamicType,
) -> Vec<ReconcileRequest<K>>
where
    K: Resource,
    K::DynamicType: Clone,
    Child: Resource,
    Child::DynamicType: Clone,
{
    let meta = child.meta();
    let namespace = meta.namespace.as_deref();
    let related = ObjectRef::from_obj_with(child, child_type.clone()).erase();
    let owners = meta.owner_references.as_deref().unwrap_or_default();
    owners
        .iter()
        .filter_map(|owner| ObjectRef::from_owner_ref(namespace, owner, owner_type.clone()))
        .map(|obj_ref| request(obj_ref, &related))
        .collect()
}

fn related_to<K: Resource>(
    related: ObjectRef<kube::api::DynamicObject>,
    objects: impl IntoIterator<Item = ObjectRef<K>>,
) -> impl Iterator<Item = ReconcileRequest<K>> {
    let objects = objects.into_iter();
    objects.map(move |obj_ref| request(obj_ref, &related))
}

fn request<K: Resource>(
    obj_ref: ObjectRef<K>,
    related: &ObjectRef<kube::api::DynamicObject>,
) -> ReconcileRequest<K> {
    ReconcileRequest {
        obj_ref,
        reason: ReconcileReason::RelatedObjectUpdated {
            obj_ref: Box::new(related.clone()),
        },
    }
}
