//! What is asked for, interned: a request after the first for an endpoint allocates nothing.

use std::hash::{Hash, Hasher};

/// A resource or another path of the API server, with its URL template.
///
/// All texts come from a bounded set: `other` stands for what came after the bound was reached.
#[derive(Debug)]
pub struct Endpoint {
    group: Box<str>,
    version: Box<str>,
    resource: Box<str>,
    subresource: Box<str>,
    template: Box<str>,
    /// Of all texts but the template.
    resource_hash: u64,
}

impl Endpoint {
    /// The API group; empty for the core group and for what is no resource.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The version; empty for what is no resource.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The resource in plural; empty for what is no resource.
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// The subresource, or empty.
    pub fn subresource(&self) -> &str {
        &self.subresource
    }

    /// The path with `{namespace}` and `{name}` in place of names, as client-go writes it.
    pub fn template(&self) -> &str {
        &self.template
    }

    pub(crate) fn resource_hash(&self) -> u64 {
        self.resource_hash
    }

    /// Whether the two differ in their template at most.
    pub(crate) fn same_resource(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
            || (self.resource_hash == other.resource_hash
                && self.resource == other.resource
                && self.subresource == other.subresource
                && self.group == other.group
                && self.version == other.version)
    }
}

impl PartialEq for Endpoint {
    fn eq(&self, other: &Self) -> bool {
        self.same_resource(other) && self.template == other.template
    }
}

impl Eq for Endpoint {}

impl Hash for Endpoint {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.resource_hash);
    }
}
