//! The kinds of objects that can be watched: a resource and the type that its objects are decoded
//! into.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::de::{Deserializer, Error};

use crate::error::DecodeError;
use crate::kinds::meta::MetaWire;
use crate::wire::Map;
use kubevitals_model::{AsPodSummary, Identity, Interner, Labels, StringPool};

/// A type that watched objects are decoded into.
///
/// The type decides how much of an object is kept:
/// [`PodSummary`](kubevitals_model::PodSummary) and [`Pod`](kubevitals_model::Pod) are both read
/// from pods, at very different costs.
pub trait Kind: fmt::Debug + Send + Sync + Sized + 'static {
    /// The form of the objects in responses.
    const FORM: Form = Form::Whole;

    /// Decodes one object of the protobuf encoding; `None` requests JSON. API servers write
    /// protobuf several times faster, which counts where objects are very many.
    const PROTOBUF: Option<ReadProtobuf<Self>> = None;

    /// Decodes one object.
    fn read<'de, D: Deserializer<'de>>(object: D, decoder: &Decoder) -> Result<Self, D::Error>;

    fn identity(&self) -> &Identity;
}

/// Decodes one object of the protobuf encoding.
pub type ReadProtobuf<K> = fn(&[u8], &Decoder) -> Result<K, DecodeError>;

/// A [`Kind`] that belongs to one resource.
pub trait TypedKind: Kind {
    const RESOURCE: Resource;
}

/// Both kinds of pods.
pub trait PodKind: TypedKind + AsPodSummary {}

impl<K: TypedKind + AsPodSummary> PodKind for K {}

/// An API resource.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Resource {
    /// Empty for the core group.
    pub group: Cow<'static, str>,
    pub version: Cow<'static, str>,
    /// The name in paths, such as `daemonsets`.
    pub plural: Cow<'static, str>,
}

/// The form in which the server sends objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Whole,
    /// `PartialObjectMetadata`: the metadata alone.
    Metadata,
}

/// Decodes objects. Clones share the interner.
#[derive(Debug, Clone, Default)]
pub struct Decoder {
    interner: Interner,
    /// Sorted.
    annotations: Arc<[Box<str>]>,
}

/// A decoder with a locked interner.
pub(crate) struct Reading<'d> {
    pub(crate) pool: &'d mut StringPool,
    annotations: &'d [Box<str>],
}

impl Resource {
    pub const fn new(group: &'static str, version: &'static str, plural: &'static str) -> Self {
        Self {
            group: Cow::Borrowed(group),
            version: Cow::Borrowed(version),
            plural: Cow::Borrowed(plural),
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.plural)
        } else {
            write!(f, "{}.{}", self.plural, self.group)
        }
    }
}

impl Decoder {
    /// A decoder that keeps no annotations.
    pub fn new(interner: Interner) -> Self {
        Self {
            interner,
            annotations: Arc::new([]),
        }
    }

    /// Keeps these annotations and no others: some contain whole manifests.
    #[must_use]
    pub fn keep_annotations<'k>(mut self, keys: impl IntoIterator<Item = &'k str>) -> Self {
        let mut kept: Vec<Box<str>> = keys.into_iter().map(Box::from).collect();
        kept.sort_unstable();
        kept.dedup();
        self.annotations = kept.into();
        self
    }

    /// Locks the interner and builds an object; it must have a name.
    pub(crate) fn build<T, E: Error>(
        &self,
        meta: MetaWire<'_>,
        build: impl FnOnce(Identity, MetaWire<'_>, &mut Reading<'_>) -> T,
    ) -> Result<T, E> {
        if meta.name.is_empty() {
            return Err(E::custom("object has no metadata.name"));
        }
        let mut pool = self.interner.lock();
        let identity = Identity {
            namespace: pool.intern(&meta.namespace),
            name: (*meta.name).into(),
            uid: (*meta.uid).into(),
            resource_version: (*meta.resource_version).into(),
        };
        let mut reading = Reading {
            pool: &mut pool,
            annotations: &self.annotations,
        };
        Ok(build(identity, meta, &mut reading))
    }
}

impl Reading<'_> {
    pub(crate) fn labels(&mut self, map: &Map<'_>) -> Labels {
        self.pool.labels(map.iter())
    }

    /// The annotations to keep.
    pub(crate) fn annotations(&mut self, map: &Map<'_>) -> Labels {
        let wanted = self.annotations;
        let is_wanted = |key: &str| wanted.binary_search_by(|own| (**own).cmp(key)).is_ok();
        self.pool
            .labels(map.iter().filter(|(key, _)| is_wanted(key)))
    }
}
