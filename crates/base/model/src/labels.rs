//! Label sets, and other maps from string to string.

use std::sync::{Arc, LazyLock};

/// A key and its value.
pub type LabelPair = (Arc<str>, Arc<str>);

/// A map from string to string: sorted by key, shared by all objects with the same one, and as
/// large as a fat pointer in each of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Labels(Arc<[LabelPair]>);

impl Labels {
    pub fn get(&self, key: &str) -> Option<&Arc<str>> {
        let at = self.0.binary_search_by(|(own, _)| (**own).cmp(key)).ok()?;
        self.0.get(at).map(|(_, value)| value)
    }

    /// Returns keys and values in the order of keys.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    /// Returns keys and values as shared strings.
    pub fn pairs(&self) -> &[(Arc<str>, Arc<str>)] {
        &self.0
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether both are one allocation, which is so for equal sets of one interner.
    pub fn is_same_allocation(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Creates a set of pairs that are sorted by key without duplicates, which [`Labels::get`]
    /// relies on.
    pub fn from_sorted(pairs: Arc<[LabelPair]>) -> Self {
        Self(pairs)
    }
}

impl Default for Labels {
    fn default() -> Self {
        static EMPTY: LazyLock<Labels> = LazyLock::new(|| Labels(Arc::new([])));
        EMPTY.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_key() {
        let pairs = [("app", "web"), ("tier", "front"), ("zone", "")];
        let labels = Labels::from_sorted(pairs.map(|(k, v)| (k.into(), v.into())).into());
        assert_eq!(labels.get("tier").map(|value| &**value), Some("front"));
        assert_eq!(labels.get("zone").map(|value| &**value), Some(""));
        assert_eq!(labels.get("none"), None);
        assert_eq!(labels.len(), 3);
    }
}
