//! Nodes by number.

use std::sync::Arc;

use super::NodeEntry;

/// How many nodes share a page: publishing copies one page, and the list of pages.
const PAGE: usize = 64;

type Page = Vec<Option<Arc<NodeEntry>>>;

/// Nodes by number. A clone shares all of them.
#[derive(Clone, Default)]
pub(crate) struct NodeTable {
    pages: Arc<Vec<Arc<Page>>>,
}

impl NodeTable {
    pub(crate) fn get(&self, number: u32) -> Option<&Arc<NodeEntry>> {
        let number = usize::try_from(number).ok()?;
        let page = self.pages.get(number / PAGE)?;
        page.get(number % PAGE)?.as_ref()
    }

    /// Puts an entry in its place, or takes it away; returns what was there.
    pub(crate) fn set(
        &mut self,
        number: u32,
        entry: Option<Arc<NodeEntry>>,
    ) -> Option<Arc<NodeEntry>> {
        let number = usize::try_from(number).ok()?;
        let pages = Arc::make_mut(&mut self.pages);
        while pages.len() <= number / PAGE {
            pages.push(Arc::new(vec![None; PAGE]));
        }
        let page = Arc::make_mut(pages.get_mut(number / PAGE)?);
        std::mem::replace(page.get_mut(number % PAGE)?, entry)
    }

    /// All entries, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<NodeEntry>> {
        self.pages.iter().flat_map(|page| page.iter().flatten())
    }
}
