//! The nodes that are not scraped.

use std::sync::Arc;

use kubevitals_model::{LabelSelector, Node};

use crate::config::SCRAPE;

/// Excludes nodes that cannot be scraped by nature, such as some virtual kubelets. Nothing is
/// excluded by default: most of them do serve metrics.
#[derive(Debug, Clone, Default)]
pub struct NodeFilter {
    /// Keys of taints.
    pub taints: Vec<String>,
    /// A selector of labels.
    pub selector: Option<LabelSelector>,
}

impl NodeFilter {
    /// Returns the reason why a node is excluded, if it is. The annotation takes precedence over
    /// the label, and both over taints and the selector. A value other than `true` and `false`
    /// excludes nothing.
    pub fn exclusion(&self, node: &Node) -> Option<Arc<str>> {
        let annotation = node.meta.annotations.get(SCRAPE).map(|value| &**value);
        let label = node.labels.get(SCRAPE).map(|value| &**value);
        let settings = [("annotation", annotation), ("label", label)];
        for (kind, value) in settings {
            match value {
                Some("false") => return Some(format!("{kind} {SCRAPE} is \"false\"").into()),
                Some("true") => return None,
                _ => {}
            }
        }
        let has_taint = |key: &&String| node.taints.iter().any(|taint| *taint.key == ***key);
        if let Some(key) = self.taints.iter().find(has_taint) {
            return Some(format!("it has the taint {key} (--exclude-node-taints)").into());
        }
        let label = |key: &str| node.labels.get(key).map(|value| &**value);
        let is_selected = self.selector.as_ref().is_some_and(|own| own.matches(label));
        is_selected.then(|| "its labels match --exclude-node-selector".into())
    }
}
