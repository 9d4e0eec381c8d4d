//! Nodes by ID.

use std::sync::Arc;

use super::NodeEntry;

/// Nodes per page: publishing copies one page and the list of pages.
const PAGE: usize = 64;

type Page = Vec<Option<Arc<NodeEntry>>>;

/// Nodes by ID. A clone shares all of them.
#[derive(Clone, Default)]
pub(crate) struct NodeTable {
    pages: Arc<Vec<Arc<Page>>>,
}

impl NodeTable {
    pub(crate) fn get(&self, id: u32) -> Option<&Arc<NodeEntry>> {
        let id = usize::try_from(id).ok()?;
        let page = self.pages.get(id / PAGE)?;
        page.get(id % PAGE)?.as_ref()
    }

    /// Sets or removes an entry; returns the previous one.
    pub(crate) fn set(&mut self, id: u32, entry: Option<Arc<NodeEntry>>) -> Option<Arc<NodeEntry>> {
        let id = usize::try_from(id).ok()?;
        let pages = Arc::make_mut(&mut self.pages);
        while pages.len() <= id / PAGE {
            pages.push(Arc::new(vec![None; PAGE]));
        }
        let page = Arc::make_mut(pages.get_mut(id / PAGE)?);
        std::mem::replace(page.get_mut(id % PAGE)?, entry)
    }

    /// Iterates over all entries by ID.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<NodeEntry>> {
        self.pages.iter().flat_map(|page| page.iter().flatten())
    }
}
