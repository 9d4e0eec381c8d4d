//! What is needed of nodes: their pools and their age.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use kube::api::ListParams;
use kubevitals_model::{Node, Timestamp};
use kubevitals_transitions::node_pool;

use crate::api::{ApiError, ApiReader};

/// More nodes than this are listed rather than read one by one.
const MAX_GETS: usize = 20;

const NODE_PAGE: u32 = 500;

/// Facts of a node. All are unknown where nodes may not be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NodeFacts {
    pub(crate) pool: Option<Arc<str>>,
    pub(crate) created: Option<Timestamp>,
}

/// The nodes read so far.
#[derive(Default)]
pub(crate) struct Nodes {
    known: HashMap<Arc<str>, NodeFacts>,
    is_forbidden: bool,
}

impl NodeFacts {
    fn of(node: &Node) -> Self {
        Self {
            pool: node_pool(&node.labels).cloned(),
            created: node.meta.created,
        }
    }
}

impl Nodes {
    /// Reads these nodes at once if they are many. Errors are ignored: permission is optional.
    pub(crate) async fn prefetch(
        &mut self,
        api: &ApiReader,
        names: impl Iterator<Item = &Arc<str>>,
    ) {
        let names: HashSet<&Arc<str>> = names.collect();
        if names.len() > MAX_GETS && !self.is_forbidden {
            let _ = self.list(api, |name| names.contains(name)).await;
        }
    }

    /// Reads all nodes.
    pub(crate) async fn list_all(&mut self, api: &ApiReader) -> Result<(), ApiError> {
        self.list(api, |_| true).await
    }

    pub(crate) async fn get(&mut self, api: &ApiReader, node: Option<&Arc<str>>) -> NodeFacts {
        let Some(node) = node else {
            return NodeFacts::default();
        };
        if let Some(known) = self.known.get(node) {
            return known.clone();
        }
        if self.is_forbidden {
            return NodeFacts::default();
        }
        let found = api.get::<Node>(None, node).await;
        self.is_forbidden = matches!(found, Err(ApiError::Forbidden(_)));
        let facts = found.map_or_else(|_| NodeFacts::default(), |node| NodeFacts::of(&node));
        self.known.insert(Arc::clone(node), facts.clone());
        facts
    }

    /// The facts of a node that was read.
    pub(crate) fn known(&self, node: Option<&Arc<str>>) -> NodeFacts {
        let known = node.and_then(|node| self.known.get(node));
        known.cloned().unwrap_or_default()
    }

    async fn list(
        &mut self,
        api: &ApiReader,
        is_wanted: impl Fn(&Arc<str>) -> bool,
    ) -> Result<(), ApiError> {
        let mut params = ListParams::default().limit(NODE_PAGE);
        loop {
            let page = api.page::<Node>(None, &params).await?;
            for node in page.objects {
                let name: Arc<str> = (*node.identity.name).into();
                if is_wanted(&name) {
                    self.known.insert(name, NodeFacts::of(&node));
                }
            }
            if page.next.is_empty() {
                return Ok(());
            }
            params.continue_token = Some(page.next);
        }
    }
}
