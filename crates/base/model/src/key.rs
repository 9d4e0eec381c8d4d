//! Keys of nodes, pods and containers.
//!
//! A key is made of shared strings (`Arc<str>`). Namespaces and container names repeat thousands of
//! times, and a pod's name repeats in each of its containers: with an interner all keys share the
//! same `Arc`, and a clone only counts references. One boxed string with offsets would be smaller
//! for a single key, but could share nothing.
//!
//! Each key has a borrowed form with the same hash, equality and order. A map of owned keys is
//! searched with it without allocating:
//!
//! ```
//! use std::collections::HashMap;
//! use kubevitals_model::{PodKey, PodKeyRef};
//!
//! let pods = HashMap::from([(PodKey::new("kube-system", "coredns-0"), 1)]);
//! let key = PodKeyRef { namespace: "kube-system", name: "coredns-0" };
//! assert_eq!(pods.get(key.as_dyn()), Some(&1));
//! ```
//!
//! `as_dyn` is needed because the standard library's maps look up by something that an owned key
//! can be borrowed as, and no reference to a [`PodKeyRef`] lies inside a [`PodKey`]; a trait object
//! over both bridges that. Order is by namespace, then pod, then container, byte by byte, as the
//! API sorts its lists.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The name of a node. Maps by it can be searched with a `&str`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeName(Arc<str>);

/// A pod: its namespace and name.
#[derive(Debug, Clone)]
pub struct PodKey {
    namespace: Arc<str>,
    name: Arc<str>,
}

/// A container of a pod.
#[derive(Debug, Clone)]
pub struct ContainerKey {
    pod: PodKey,
    container: Arc<str>,
}

/// A [`PodKey`] made of borrowed strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodKeyRef<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
}

/// A [`ContainerKey`] made of borrowed strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerKeyRef<'a> {
    pub pod: PodKeyRef<'a>,
    pub container: &'a str,
}

/// Owned and borrowed keys of pods, to look up in a map of [`PodKey`].
pub trait AsPodKey {
    fn as_pod_key(&self) -> PodKeyRef<'_>;
}

/// Owned and borrowed keys of containers, to look up in a map of [`ContainerKey`].
pub trait AsContainerKey {
    fn as_container_key(&self) -> ContainerKeyRef<'_>;
}

impl NodeName {
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl PodKey {
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// The namespace, which can be shared with another key.
    pub fn namespace(&self) -> &Arc<str> {
        &self.namespace
    }

    /// The name of the pod, which can be shared with another key.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Whether both share their strings, and so are equal without a comparison.
    pub fn is_same_allocation(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.name, &other.name) && Arc::ptr_eq(&self.namespace, &other.namespace)
    }

    /// Returns the key of one of its containers.
    #[must_use]
    pub fn container(&self, container: impl Into<Arc<str>>) -> ContainerKey {
        ContainerKey {
            pod: self.clone(),
            container: container.into(),
        }
    }
}

impl ContainerKey {
    pub fn new(
        namespace: impl Into<Arc<str>>,
        pod: impl Into<Arc<str>>,
        container: impl Into<Arc<str>>,
    ) -> Self {
        Self {
            pod: PodKey::new(namespace, pod),
            container: container.into(),
        }
    }

    pub fn pod(&self) -> &PodKey {
        &self.pod
    }

    /// The name of the container, which can be shared with another key.
    pub fn container(&self) -> &Arc<str> {
        &self.container
    }
}

impl<'a> PodKeyRef<'a> {
    /// Returns the argument of a map lookup.
    pub fn as_dyn(&self) -> &(dyn AsPodKey + 'a) {
        self
    }

    /// Copies the strings.
    pub fn to_owned_key(self) -> PodKey {
        PodKey::new(self.namespace, self.name)
    }
}

impl<'a> ContainerKeyRef<'a> {
    /// Returns the argument of a map lookup.
    pub fn as_dyn(&self) -> &(dyn AsContainerKey + 'a) {
        self
    }

    /// Copies the strings.
    pub fn to_owned_key(self) -> ContainerKey {
        ContainerKey {
            pod: self.pod.to_owned_key(),
            container: self.container.into(),
        }
    }
}

impl AsPodKey for PodKey {
    fn as_pod_key(&self) -> PodKeyRef<'_> {
        PodKeyRef {
            namespace: &self.namespace,
            name: &self.name,
        }
    }
}

impl AsPodKey for PodKeyRef<'_> {
    fn as_pod_key(&self) -> PodKeyRef<'_> {
        *self
    }
}

impl AsContainerKey for ContainerKey {
    fn as_container_key(&self) -> ContainerKeyRef<'_> {
        ContainerKeyRef {
            pod: self.pod.as_pod_key(),
            container: &self.container,
        }
    }
}

impl AsContainerKey for ContainerKeyRef<'_> {
    fn as_container_key(&self) -> ContainerKeyRef<'_> {
        *self
    }
}

impl<'a> Borrow<dyn AsPodKey + 'a> for PodKey {
    fn borrow(&self) -> &(dyn AsPodKey + 'a) {
        self
    }
}

impl<'a> Borrow<dyn AsContainerKey + 'a> for ContainerKey {
    fn borrow(&self) -> &(dyn AsContainerKey + 'a) {
        self
    }
}

impl Borrow<str> for NodeName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Display for PodKeyRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Display for ContainerKeyRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pod, self.container)
    }
}

/// Hash, equality, order and text of a key are those of its borrowed form, so that a lookup by
/// either finds the other.
macro_rules! like_its_borrowed_form {
    ($method:ident: $($name:ty),+) => {$(
        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.$method() == other.$method()
            }
        }

        impl Eq for $name {}

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl Ord for $name {
            fn cmp(&self, other: &Self) -> Ordering {
                self.$method().cmp(&other.$method())
            }
        }

        impl Hash for $name {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.$method().hash(state);
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.$method().fmt(f)
            }
        }
    )+};
}

like_its_borrowed_form!(as_pod_key: PodKey, dyn AsPodKey + '_);
like_its_borrowed_form!(as_container_key: ContainerKey, dyn AsContainerKey + '_);

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use super::*;

    #[test]
    fn maps_are_searched_with_borrowed_names() {
        let owned = ContainerKey::new("default", "web-0", "nginx");
        let borrowed = ContainerKeyRef {
            pod: PodKeyRef {
                namespace: "default",
                name: "web-0",
            },
            container: "nginx",
        };
        let hashed = HashMap::from([(owned.clone(), 1)]);
        let sorted = BTreeMap::from([(owned.clone(), 2)]);
        assert_eq!(hashed.get(borrowed.as_dyn()), Some(&1));
        assert_eq!(sorted.get(borrowed.as_dyn()), Some(&2));
        assert_eq!(hashed.get(&owned), Some(&1));
        assert!(
            !hashed.contains_key(
                ContainerKeyRef {
                    container: "other",
                    ..borrowed
                }
                .as_dyn()
            )
        );

        let pods = HashMap::from([(owned.pod().clone(), 3)]);
        assert_eq!(pods.get(borrowed.pod.as_dyn()), Some(&3));
        let nodes = HashMap::from([(NodeName::new("node-1"), 4)]);
        assert_eq!(nodes.get("node-1"), Some(&4));
    }

    #[test]
    fn names_that_join_to_the_same_text_stay_apart() {
        let pods = HashMap::from([(PodKey::new("a", "bc"), 1)]);
        assert!(
            !pods.contains_key(
                PodKeyRef {
                    namespace: "ab",
                    name: "c"
                }
                .as_dyn()
            )
        );
    }

    #[test]
    fn order_is_by_namespace_then_pod_then_container() {
        let key = ContainerKey::new;
        let mut keys = [
            key("b", "a", "a"),
            key("a", "b", "a"),
            key("a", "a", "b"),
            key("a", "a-b", "a"),
            key("a", "a", "a"),
        ];
        keys.sort();
        let texts = keys.each_ref().map(ToString::to_string);
        assert_eq!(texts, ["a/a/a", "a/a/b", "a/a-b/a", "a/b/a", "b/a/a"]);
    }

    #[test]
    fn keys_share_their_strings() {
        let pod = PodKey::new("default", "web-0");
        let container = pod.container("nginx");
        assert!(Arc::ptr_eq(pod.namespace(), container.pod().namespace()));
        assert!(Arc::ptr_eq(pod.name(), container.pod().name()));
        assert_eq!(container, container.as_container_key().to_owned_key());
    }
}
