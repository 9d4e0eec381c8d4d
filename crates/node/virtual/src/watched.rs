//! Pods as the API server has them: whole objects, without `managedFields`.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kubevitals_model::{Identity, PodKey, Uid};
use kubevitals_watch::{Decoder, Kind, Resource, TypedKind};
use serde::de::{Deserialize, Deserializer, Error};

use crate::runtime::PodId;

/// A whole pod: a runtime needs all of its spec.
#[derive(Debug)]
pub struct WatchedPod {
    identity: Identity,
    pub pod: Arc<Pod>,
}

impl Kind for WatchedPod {
    fn read<'de, D: Deserializer<'de>>(object: D, _: &Decoder) -> Result<Self, D::Error> {
        let pod = Pod::deserialize(object)?;
        Self::new(pod).ok_or_else(|| D::Error::custom("pod has no name, namespace or uid"))
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }
}

impl TypedKind for WatchedPod {
    const RESOURCE: Resource = Resource::new("", "v1", "pods");
}

impl WatchedPod {
    /// Returns `None` if the object has no identity.
    pub(crate) fn new(mut pod: Pod) -> Option<Self> {
        pod.metadata.managed_fields = None;
        let text = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
        let identity = Identity {
            namespace: text(&pod.metadata.namespace)?.into(),
            name: text(&pod.metadata.name)?.into(),
            uid: text(&pod.metadata.uid)?.as_str().into(),
            resource_version: pod
                .metadata
                .resource_version
                .as_deref()
                .unwrap_or("")
                .into(),
        };
        Some(Self {
            identity,
            pod: Arc::new(pod),
        })
    }

    pub(crate) fn uid(&self) -> &Uid {
        &self.identity.uid
    }

    pub(crate) fn id(&self) -> PodId {
        PodId {
            uid: self.identity.uid.clone(),
            key: PodKey::new(
                Arc::clone(&self.identity.namespace),
                Arc::clone(&self.identity.name),
            ),
        }
    }

    /// Whether this state is not older than the other, as far as versions can be compared.
    pub(crate) fn is_at_least(&self, other: &Self) -> bool {
        let version = |pod: &Self| pod.identity.resource_version.as_number();
        match (version(self), version(other)) {
            (Some(own), Some(other)) => own >= other,
            _ => true,
        }
    }
}
