//! Object keys, optimized for lookups among 150,000 others.

use std::cmp::Ordering;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::api::resources::ResourceInfo;
use crate::objects::WriteError;

/// Bytes of a key that are kept inline: about the namespace and the name of the workload.
const HEAD: usize = 24;

/// `namespace/name`, or the name, with its first bytes inline.
///
/// A lookup compares about thirty keys. Each is a cache miss, which costs more than the comparison;
/// most keys already differ in their first bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    /// Big-endian, padded with zeros, so that the order of numbers is that of bytes.
    head: [u64; HEAD / 8],
    full: Arc<str>,
}

impl Key {
    pub(crate) fn new(key: &str) -> Self {
        let mut bytes = key.bytes();
        let head = std::array::from_fn(|_| {
            u64::from_be_bytes(std::array::from_fn(|_| bytes.next().unwrap_or(0)))
        });
        Self {
            head,
            full: Arc::from(key),
        }
    }

    pub(crate) fn full(&self) -> &Arc<str> {
        &self.full
    }
}

impl Ord for Key {
    /// The order of the full keys: zeros sort before any other byte, as the end of a key does.
    fn cmp(&self, other: &Self) -> Ordering {
        self.head
            .cmp(&other.head)
            .then_with(|| self.full.cmp(&other.full))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Returns the key of an object: as in etcd, the order of keys is the order of lists.
pub(crate) fn join_key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        name.to_owned()
    } else {
        format!("{namespace}/{name}")
    }
}

/// Returns the key of an object after checking its names.
pub(super) fn key_of(
    info: &ResourceInfo,
    object: &Map<String, Value>,
) -> Result<String, WriteError> {
    let member = |name: &str| {
        object
            .get("metadata")
            .and_then(|metadata| metadata.get(name))
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (namespace, name) = (member("namespace"), member("name"));
    check_names(info, namespace, name)?;
    Ok(join_key(namespace, name))
}

pub(super) fn check_names(
    info: &ResourceInfo,
    namespace: &str,
    name: &str,
) -> Result<(), WriteError> {
    let invalid = |reason: &str| WriteError::Invalid {
        resource: info.resource,
        reason: reason.to_owned(),
    };
    if name.is_empty() || name.contains('/') {
        return Err(invalid("metadata.name is missing or contains a slash"));
    }
    if info.namespaced == namespace.is_empty() || namespace.contains('/') {
        return Err(invalid(
            "metadata.namespace does not match the scope of the resource",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn keys_are_in_the_order_of_their_text(
            common in "[a\\x00-]{0,26}", one in "[a/b\\x00é]{0,6}", other in "[a/b\\x00é]{0,6}",
        ) {
            let (one, other) = (format!("{common}{one}"), format!("{common}{other}"));
            prop_assert_eq!(Key::new(&one).cmp(&Key::new(&other)), one.cmp(&other));
        }
    }
}
