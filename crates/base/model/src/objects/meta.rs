//! Metadata that all objects have.

use std::sync::Arc;

use super::identity::{Identity, Uid};
use crate::labels::Labels;
use crate::timestamp::Timestamp;

/// The metadata of an object beyond its [`Identity`] and labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectMeta {
    /// Incremented with every change of the spec.
    pub generation: i64,
    /// In whole seconds.
    pub created: Option<Timestamp>,
    /// The end of the grace period, if deletion was requested.
    pub deleted: Option<Timestamp>,
    /// The grace period in seconds.
    pub deletion_grace: Option<u32>,
    /// The annotations that the reflector keeps.
    pub annotations: Labels,
    pub owners: Box<[OwnerReference]>,
}

/// One owner of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerReference {
    pub api_version: Arc<str>,
    /// The kind, such as `ReplicaSet`.
    pub kind: Arc<str>,
    pub name: Arc<str>,
    pub uid: Uid,
    /// Whether it is the managing controller.
    pub controller: bool,
}

/// The metadata of an object of any kind, which is all that the server is asked to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartialObjectMeta {
    pub identity: Identity,
    pub labels: Labels,
    pub meta: ObjectMeta,
}

impl ObjectMeta {
    /// Returns the owner that is the managing controller.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owners.iter().find(|owner| owner.controller)
    }
}
