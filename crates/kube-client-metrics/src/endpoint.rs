//! Interned endpoints: only the first request of an endpoint allocates.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use hashbrown::{Equivalent, HashMap};
use parking_lot::RwLock;

use crate::request_info::{KnownPath, LegacyVerb, PathForm, ResourcePath, Target};

/// A resource or another path of the API server, with its URL template.
///
/// All values come from a bounded set, and none is a name, a namespace or a raw path: what does not
/// look like a group, a version or a resource, and every new endpoint beyond the limit, is `other`.
#[derive(Debug)]
pub struct Endpoint {
    pub(crate) group: Arc<str>,
    pub(crate) version: Arc<str>,
    pub(crate) resource: Arc<str>,
    pub(crate) subresource: Arc<str>,
    template: Box<str>,
    /// The hash of all values but the template.
    resource_hash: u64,
}

/// The known endpoints, up to a limit.
#[derive(Debug)]
pub(crate) struct Endpoints {
    limit: usize,
    /// In the order of [`KnownPath::ALL`].
    paths: Vec<Arc<Endpoint>>,
    other: Arc<Endpoint>,
    seen: RwLock<HashMap<Key, Arc<Endpoint>>>,
}

/// An owned [`ResourcePath`].
#[derive(Debug, PartialEq, Eq)]
struct Key {
    endpoint: Arc<Endpoint>,
    form: PathForm,
}

impl Endpoint {
    /// Returns the API group; empty for the core group and for other paths than resources.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Returns the version; empty for other paths than resources.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the plural name of the resource; empty for other paths.
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// Returns the subresource, or an empty string.
    pub fn subresource(&self) -> &str {
        &self.subresource
    }

    /// Returns the path with `{namespace}` and `{name}` in place of names, without the query.
    ///
    /// client-go's `finalURLTemplate` counts path segments and so takes the name of a node for a
    /// namespace (`/api/v1/nodes/{namespace}/proxy`), and keeps the path after `proxy`. This one
    /// does neither.
    pub fn template(&self) -> &str {
        &self.template
    }

    pub(crate) fn resource_hash(&self) -> u64 {
        self.resource_hash
    }

    /// Returns whether the two are equal except for their template.
    pub(crate) fn same_resource(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
            || (self.resource_hash == other.resource_hash
                && self.resource == other.resource
                && self.subresource == other.subresource
                && self.group == other.group
                && self.version == other.version)
    }

    fn new(texts: [&str; 4], template: &str) -> Self {
        let [group, version, resource, subresource] = texts;
        // Not seeded: equal endpoints of two clients that share a registry must have equal hashes.
        let mut hasher = DefaultHasher::new();
        texts.hash(&mut hasher);
        Self {
            group: group.into(),
            version: version.into(),
            resource: resource.into(),
            subresource: subresource.into(),
            template: template.into(),
            resource_hash: hasher.finish(),
        }
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

impl Endpoints {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            paths: KnownPath::ALL
                .into_iter()
                .map(|path| Arc::new(Endpoint::new([""; 4], path.template())))
                .collect(),
            other: Arc::new(Endpoint::new(
                ["other", "other", "other", ""],
                KnownPath::Prefix.template(),
            )),
            seen: RwLock::new(HashMap::new()),
        }
    }

    /// Returns the endpoint of a target. Allocates only if it is new.
    pub(crate) fn get(&self, target: &Target<'_>) -> Arc<Endpoint> {
        match target {
            Target::Resource(path) => self.get_resource(path),
            Target::Path(path) => Arc::clone(self.paths.get(*path as usize).unwrap_or(&self.other)),
            Target::Malformed => Arc::clone(&self.other),
        }
    }

    fn get_resource(&self, path: &ResourcePath<'_>) -> Arc<Endpoint> {
        {
            let seen = self.seen.read();
            if let Some(endpoint) = seen.get(path) {
                return Arc::clone(endpoint);
            }
            if seen.len() >= self.limit {
                return Arc::clone(&self.other);
            }
        }
        let mut seen = self.seen.write();
        // Another thread may have been faster.
        if let Some(endpoint) = seen.get(path) {
            return Arc::clone(endpoint);
        }
        if seen.len() >= self.limit {
            return Arc::clone(&self.other);
        }
        let endpoint = Arc::new(Endpoint::new(
            [path.group, path.version, path.resource, path.subresource],
            &template(path),
        ));
        let key = Key {
            endpoint: Arc::clone(&endpoint),
            form: path.form,
        };
        seen.insert(key, Arc::clone(&endpoint));
        endpoint
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Endpoint {
            group,
            version,
            resource,
            subresource,
            ..
        } = &*self.endpoint;
        ResourcePath {
            group,
            version,
            resource,
            subresource,
            form: self.form,
        }
        .hash(state);
    }
}

impl Equivalent<Key> for ResourcePath<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        self.form == key.form
            && *self.resource == *key.endpoint.resource
            && *self.subresource == *key.endpoint.subresource
            && *self.group == *key.endpoint.group
            && *self.version == *key.endpoint.version
    }
}

fn template(path: &ResourcePath<'_>) -> String {
    let mut template = match path.group {
        "" => format!("/api/{}", path.version),
        group => format!("/apis/{group}/{}", path.version),
    };
    template.push_str(match path.form.prefix {
        Some(LegacyVerb::Watch) => "/watch",
        Some(LegacyVerb::Proxy) => "/proxy",
        None => "",
    });
    if path.form.namespaced {
        template.push_str("/namespaces/{namespace}");
    }
    template.push('/');
    template.push_str(path.resource);
    if path.form.named {
        template.push_str("/{name}");
    }
    if !path.subresource.is_empty() {
        template.push('/');
        template.push_str(path.subresource);
    }
    template
}
