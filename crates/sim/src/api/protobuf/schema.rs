//! Field numbers of the supported kinds.

/// The type of a field.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Text,
    Texts,
    Flag,
    Number,
    Message(Fields),
    Messages(Fields),
    /// A map from string to string.
    TextMap,
    /// A map from string to list of strings.
    TextsMap,
    /// A map from string to bytes, which are base64 in JSON.
    BytesMap,
    /// A field that clients may not set.
    Ignored,
    /// `Time`: seconds and nanoseconds.
    Time,
    /// `MicroTime`.
    MicroTime,
}

pub(super) type Fields = &'static [(u64, &'static str, Kind)];

pub(super) const OWNER: Fields = &[
    (1, "kind", Kind::Text),
    (3, "name", Kind::Text),
    (4, "uid", Kind::Text),
    (5, "apiVersion", Kind::Text),
    (6, "controller", Kind::Flag),
    (7, "blockOwnerDeletion", Kind::Flag),
];
/// `managedFields` are omitted: the server maintains its own.
pub(super) const METADATA: Fields = &[
    (1, "name", Kind::Text),
    (2, "generateName", Kind::Text),
    (3, "namespace", Kind::Text),
    (5, "uid", Kind::Text),
    (6, "resourceVersion", Kind::Text),
    (7, "generation", Kind::Number),
    (8, "creationTimestamp", Kind::Time),
    (9, "deletionTimestamp", Kind::Time),
    (10, "deletionGracePeriodSeconds", Kind::Number),
    (11, "labels", Kind::TextMap),
    (12, "annotations", Kind::TextMap),
    (13, "ownerReferences", Kind::Messages(OWNER)),
    (14, "finalizers", Kind::Texts),
    (4, "selfLink", Kind::Ignored),
    (17, "managedFields", Kind::Ignored),
];
pub(super) const STATUS: (u64, &str, Kind) = (3, "status", Kind::Ignored);
pub(super) const TOKEN_REVIEW: Fields = &[
    (1, "metadata", Kind::Message(METADATA)),
    (
        2,
        "spec",
        Kind::Message(&[(1, "token", Kind::Text), (2, "audiences", Kind::Texts)]),
    ),
    STATUS,
];
pub(super) const NAMESPACE: Fields = &[
    (1, "metadata", Kind::Message(METADATA)),
    (2, "spec", Kind::Message(&[(1, "finalizers", Kind::Texts)])),
    STATUS,
];
pub(super) const CONFIG_MAP: Fields = &[
    (1, "metadata", Kind::Message(METADATA)),
    (2, "data", Kind::TextMap),
    (3, "binaryData", Kind::BytesMap),
    (4, "immutable", Kind::Flag),
];
pub(super) const SECRET: Fields = &[
    (1, "metadata", Kind::Message(METADATA)),
    (2, "data", Kind::BytesMap),
    (3, "type", Kind::Text),
    (5, "immutable", Kind::Flag),
];
pub(super) const SERVICE_ACCOUNT: Fields = &[
    (1, "metadata", Kind::Message(METADATA)),
    (4, "automountServiceAccountToken", Kind::Flag),
];
pub(super) const TOKEN_REQUEST: Fields = &[
    (1, "metadata", Kind::Message(METADATA)),
    (
        2,
        "spec",
        Kind::Message(&[
            (1, "audiences", Kind::Texts),
            (4, "expirationSeconds", Kind::Number),
        ]),
    ),
    STATUS,
];
pub(super) const REFERENCE: Fields = &[
    (1, "kind", Kind::Text),
    (2, "namespace", Kind::Text),
    (3, "name", Kind::Text),
    (4, "uid", Kind::Text),
    (5, "apiVersion", Kind::Text),
    (6, "resourceVersion", Kind::Text),
    (7, "fieldPath", Kind::Text),
];
pub(super) const EVENT: Fields = &[
    (1, "metadata", Kind::Message(METADATA)),
    (2, "involvedObject", Kind::Message(REFERENCE)),
    (3, "reason", Kind::Text),
    (4, "message", Kind::Text),
    (
        5,
        "source",
        Kind::Message(&[(1, "component", Kind::Text), (2, "host", Kind::Text)]),
    ),
    (6, "firstTimestamp", Kind::Time),
    (7, "lastTimestamp", Kind::Time),
    (8, "count", Kind::Number),
    (9, "type", Kind::Text),
    (10, "eventTime", Kind::MicroTime),
    (
        11,
        "series",
        Kind::Message(&[
            (1, "count", Kind::Number),
            (2, "lastObservedTime", Kind::MicroTime),
        ]),
    ),
    (12, "action", Kind::Text),
    (13, "related", Kind::Message(REFERENCE)),
    (14, "reportingComponent", Kind::Text),
    (15, "reportingInstance", Kind::Text),
];
pub(super) const TEXTS_ENTRY: Fields = &[
    (1, "k", Kind::Text),
    (2, "v", Kind::Message(&[(1, "items", Kind::Texts)])),
];
pub(super) const REQUIREMENT: Fields = &[
    (1, "key", Kind::Text),
    (2, "operator", Kind::Text),
    (3, "values", Kind::Texts),
];
pub(super) const SELECTOR: Fields = &[
    (1, "rawSelector", Kind::Text),
    (2, "requirements", Kind::Messages(REQUIREMENT)),
];
pub(super) const RESOURCE: Fields = &[
    (1, "namespace", Kind::Text),
    (2, "verb", Kind::Text),
    (3, "group", Kind::Text),
    (4, "version", Kind::Text),
    (5, "resource", Kind::Text),
    (6, "subresource", Kind::Text),
    (7, "name", Kind::Text),
    (8, "fieldSelector", Kind::Message(SELECTOR)),
    (9, "labelSelector", Kind::Message(SELECTOR)),
];
pub(super) const PATH: Fields = &[(1, "path", Kind::Text), (2, "verb", Kind::Text)];
pub(super) const ACCESS_REVIEW: Fields = &[
    (1, "metadata", Kind::Message(METADATA)),
    (
        2,
        "spec",
        Kind::Message(&[
            (1, "resourceAttributes", Kind::Message(RESOURCE)),
            (2, "nonResourceAttributes", Kind::Message(PATH)),
            (3, "user", Kind::Text),
            (4, "groups", Kind::Texts),
            (5, "extra", Kind::TextsMap),
            (6, "uid", Kind::Text),
        ]),
    ),
    STATUS,
];
pub(super) const RULES_REVIEW: Fields = &[
    (1, "metadata", Kind::Message(METADATA)),
    (2, "spec", Kind::Message(&[(1, "namespace", Kind::Text)])),
    STATUS,
];
pub(super) const SELF_REVIEW: Fields = &[
    (1, "metadata", Kind::Message(METADATA)),
    (2, "status", Kind::Ignored),
];
pub(super) const DELETE_OPTIONS: Fields = &[
    (1, "gracePeriodSeconds", Kind::Number),
    (
        2,
        "preconditions",
        Kind::Message(&[(1, "uid", Kind::Text), (2, "resourceVersion", Kind::Text)]),
    ),
    (3, "orphanDependents", Kind::Flag),
    (4, "propagationPolicy", Kind::Text),
    (5, "dryRun", Kind::Texts),
];
pub(super) const LEASE: Fields = &[
    (1, "metadata", Kind::Message(METADATA)),
    (
        2,
        "spec",
        Kind::Message(&[
            (1, "holderIdentity", Kind::Text),
            (2, "leaseDurationSeconds", Kind::Number),
            (3, "acquireTime", Kind::MicroTime),
            (4, "renewTime", Kind::MicroTime),
            (5, "leaseTransitions", Kind::Number),
            (6, "strategy", Kind::Text),
            (7, "preferredHolder", Kind::Text),
        ]),
    ),
];
