//! Field tags of the messages, shared by the encoder, the reader, and the JSON encoder, which
//! recognizes common messages by their bytes.
//!
//! A tag is a field number and a wire type. All numbers here are below 16, so a tag takes one byte.

const VARINT: u8 = 0;
const LEN: u8 = 2;

const fn varint(field: u8) -> u8 {
    field << 3 | VARINT
}

const fn len(field: u8) -> u8 {
    field << 3 | LEN
}

/// `NodeMetrics`, `PodMetrics` and `PartialObjectMetadata`.
pub(crate) mod object {
    use super::len;

    pub(crate) const METADATA: u8 = len(1);
    pub(crate) const TIMESTAMP: u8 = len(2);
    pub(crate) const WINDOW: u8 = len(3);
    /// In a node: entries of a map from resource to quantity.
    pub(crate) const USAGE: u8 = len(4);
    /// In a pod.
    pub(crate) const CONTAINERS: u8 = len(4);
}

/// `ContainerMetrics`.
pub(crate) mod container {
    use super::len;

    pub(crate) const NAME: u8 = len(1);
    pub(crate) const USAGE: u8 = len(2);
}

/// `metav1.ObjectMeta`.
pub(crate) mod meta {
    use super::{len, varint};

    pub(crate) const NAME: u8 = len(1);
    pub(crate) const GENERATE_NAME: u8 = len(2);
    pub(crate) const NAMESPACE: u8 = len(3);
    pub(crate) const SELF_LINK: u8 = len(4);
    pub(crate) const UID: u8 = len(5);
    pub(crate) const RESOURCE_VERSION: u8 = len(6);
    pub(crate) const GENERATION: u8 = varint(7);
    pub(crate) const CREATION_TIMESTAMP: u8 = len(8);
    pub(crate) const LABELS: u8 = len(11);
    pub(crate) const ANNOTATIONS: u8 = len(12);

    /// The bytes between name and namespace.
    pub(crate) const EMPTY_GENERATE_NAME: [u8; 2] = [GENERATE_NAME, 0];
    /// The bytes between namespace and creation timestamp.
    pub(crate) const EMPTY_SELF_LINK_TO_GENERATION: [u8; 8] =
        [SELF_LINK, 0, UID, 0, RESOURCE_VERSION, 0, GENERATION, 0];
}

/// The entry of a map.
pub(crate) mod entry {
    use super::len;

    pub(crate) const KEY: u8 = len(1);
    pub(crate) const VALUE: u8 = len(2);
}

/// `resource.Quantity`.
pub(crate) mod quantity {
    pub(crate) const TEXT: u8 = super::len(1);
}

/// `metav1.Time`, and `metav1.Duration` with nanoseconds in the first field.
pub(crate) mod time {
    use super::varint;

    pub(crate) const SECONDS: u8 = varint(1);
    pub(crate) const NANOSECONDS: u8 = varint(2);
    pub(crate) const DURATION: u8 = varint(1);
}

/// Lists, and their `metav1.ListMeta`.
pub(crate) mod list {
    use super::len;

    pub(crate) const METADATA: u8 = len(1);
    pub(crate) const ITEMS: u8 = len(2);

    pub(crate) const SELF_LINK: u8 = len(1);
    pub(crate) const RESOURCE_VERSION: u8 = len(2);
    pub(crate) const CONTINUE: u8 = len(3);
}

/// `runtime.Unknown`, the envelope of every object, and its `runtime.TypeMeta`.
pub(crate) mod envelope {
    use super::len;

    /// The first bytes of every body.
    pub(crate) const MAGIC: [u8; 4] = *b"k8s\0";

    pub(crate) const TYPE_META: u8 = len(1);
    pub(crate) const RAW: u8 = len(2);
    pub(crate) const CONTENT_ENCODING: u8 = len(3);
    pub(crate) const CONTENT_TYPE: u8 = len(4);

    pub(crate) const API_VERSION: u8 = len(1);
    pub(crate) const KIND: u8 = len(2);
}

/// `metav1.Status`; its metadata is that of a list.
pub(crate) mod status {
    use super::{len, varint};

    pub(crate) const STATUS: u8 = len(2);
    pub(crate) const MESSAGE: u8 = len(3);
    pub(crate) const REASON: u8 = len(4);
    pub(crate) const CODE: u8 = varint(6);
}

/// `metav1.WatchEvent`, and the `runtime.RawExtension` in it.
pub(crate) mod event {
    use super::len;

    pub(crate) const TYPE: u8 = len(1);
    pub(crate) const OBJECT: u8 = len(2);

    pub(crate) const RAW: u8 = len(1);
}
