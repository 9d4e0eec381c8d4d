//! Label values, owned in a family and borrowed in lookups.
//!
//! Each type is generic over both: with `Arc`s it is a key, with references a query. Both have the
//! same hash.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use hashbrown::Equivalent;

use super::family::Labels;
use crate::hooks::{InformerId, Outcome, StreamEnd, StreamKind};
use crate::{Call, Code, Endpoint, HttpMethod, Verb};

/// `verb` and `host`, client-go's labels of requests.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct ByHost<H> {
    pub(crate) method: HttpMethod,
    pub(crate) host: H,
}

/// `code`, `method` and `host`, client-go's labels of attempts.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct ByCode<H> {
    pub(crate) code: Code,
    pub(crate) method: HttpMethod,
    pub(crate) host: H,
}

/// An endpoint without its template: endpoints that differ only in their path share a series.
#[derive(Debug)]
pub(crate) struct Resource<E>(pub(crate) E);

/// `verb`, `group`, `version`, `resource`, `subresource`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct ByResource<E: AsEndpoint> {
    pub(crate) verb: Verb,
    pub(crate) resource: Resource<E>,
}

/// `verb`, `group`, `version`, `resource`, `subresource`, `code`, `outcome`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct ByOutcome<E: AsEndpoint> {
    pub(crate) verb: Verb,
    pub(crate) resource: Resource<E>,
    pub(crate) code: Code,
    pub(crate) outcome: Outcome,
}

/// `kind`, `group`, `version`, `resource`, `subresource`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct ByStream<E: AsEndpoint> {
    pub(crate) kind: StreamKind,
    pub(crate) resource: Resource<E>,
}

/// `kind`, `group`, `version`, `resource`, `subresource`, `end`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct ByEnd<E: AsEndpoint> {
    pub(crate) kind: StreamKind,
    pub(crate) resource: Resource<E>,
    pub(crate) end: StreamEnd,
}

/// One value from the program: a host, the name of a queue or of a lease.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Name<N>(pub(crate) N);

/// Values from closed sets, in the order of the family's labels; may be empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Fixed<const N: usize>(pub(crate) [&'static str; N]);

/// One value from the program, and one from a closed set.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct NameAnd<N>(pub(crate) N, pub(crate) &'static str);

/// The name and the resource of an informer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ByInformer(pub(crate) InformerId);

impl<'a> ByHost<&'a str> {
    pub(crate) fn of(call: &'a Call) -> Self {
        Self {
            method: call.method,
            host: &call.host,
        }
    }
}

impl<'a> ByCode<&'a str> {
    pub(crate) fn of(call: &'a Call, code: Code) -> Self {
        Self {
            code,
            method: call.method,
            host: &call.host,
        }
    }
}

impl<'a> Resource<&'a Arc<Endpoint>> {
    pub(crate) fn of(call: &'a Call) -> Self {
        Self(&call.endpoint)
    }
}

impl<E: AsEndpoint> Resource<E> {
    fn values(&self) -> [&str; 4] {
        let endpoint = self.0.endpoint();
        [
            endpoint.group(),
            endpoint.version(),
            endpoint.resource(),
            endpoint.subresource(),
        ]
    }
}

/// An endpoint, owned or borrowed.
pub(crate) trait AsEndpoint {
    fn endpoint(&self) -> &Endpoint;
}

impl AsEndpoint for Arc<Endpoint> {
    fn endpoint(&self) -> &Endpoint {
        self
    }
}

impl AsEndpoint for &Arc<Endpoint> {
    fn endpoint(&self) -> &Endpoint {
        self
    }
}

impl<E: AsEndpoint> Hash for Resource<E> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.endpoint().resource_hash());
    }
}

impl<E: AsEndpoint> PartialEq for Resource<E> {
    fn eq(&self, other: &Self) -> bool {
        self.0.endpoint().same_resource(other.0.endpoint())
    }
}

impl<E: AsEndpoint> Eq for Resource<E> {}

/// Implements comparison of borrowed with owned labels, and the conversion to owned ones.
macro_rules! borrowed {
    ($labels:ident, $owned:ty, $borrowed:ty, |$key:ident| $make:expr, |$left:ident, $right:ident| $same:expr) => {
        impl Equivalent<$labels<$owned>> for $labels<$borrowed> {
            fn equivalent(&self, key: &$labels<$owned>) -> bool {
                let ($left, $right) = (self, key);
                $same
            }
        }

        impl From<&$labels<$borrowed>> for $labels<$owned> {
            fn from($key: &$labels<$borrowed>) -> Self {
                $make
            }
        }
    };
}

borrowed!(
    ByHost,
    Arc<str>,
    &str,
    |key| Self {
        method: key.method,
        host: key.host.into()
    },
    |a, b| a.method == b.method && *a.host == *b.host
);
borrowed!(
    ByCode,
    Arc<str>,
    &str,
    |key| Self {
        code: key.code,
        method: key.method,
        host: key.host.into()
    },
    |a, b| a.code == b.code && a.method == b.method && *a.host == *b.host
);
borrowed!(
    ByResource,
    Arc<Endpoint>,
    &Arc<Endpoint>,
    |key| Self {
        verb: key.verb,
        resource: key.resource.to_owned()
    },
    |a, b| a.verb == b.verb && a.resource.is(&b.resource)
);
borrowed!(
    ByOutcome,
    Arc<Endpoint>,
    &Arc<Endpoint>,
    |key| Self {
        verb: key.verb,
        resource: key.resource.to_owned(),
        code: key.code,
        outcome: key.outcome
    },
    |a, b| a.verb == b.verb
        && a.code == b.code
        && a.outcome == b.outcome
        && a.resource.is(&b.resource)
);
borrowed!(
    ByStream,
    Arc<Endpoint>,
    &Arc<Endpoint>,
    |key| Self {
        kind: key.kind,
        resource: key.resource.to_owned()
    },
    |a, b| a.kind == b.kind && a.resource.is(&b.resource)
);
borrowed!(
    ByEnd,
    Arc<Endpoint>,
    &Arc<Endpoint>,
    |key| Self {
        kind: key.kind,
        resource: key.resource.to_owned(),
        end: key.end
    },
    |a, b| a.kind == b.kind && a.end == b.end && a.resource.is(&b.resource)
);
borrowed!(Name, Arc<str>, &str, |key| Self(key.0.into()), |a, b| *a.0
    == *b.0);
borrowed!(
    NameAnd,
    Arc<str>,
    &str,
    |key| Self(key.0.into(), key.1),
    |a, b| a.1 == b.1 && *a.0 == *b.0
);

impl Resource<&Arc<Endpoint>> {
    fn to_owned(&self) -> Resource<Arc<Endpoint>> {
        Resource(Arc::clone(self.0))
    }

    fn is(&self, key: &Resource<Arc<Endpoint>>) -> bool {
        self.0.same_resource(&key.0)
    }
}

impl From<&Self> for ByInformer {
    fn from(labels: &Self) -> Self {
        labels.clone()
    }
}

impl<const N: usize> From<&Self> for Fixed<N> {
    fn from(labels: &Self) -> Self {
        *labels
    }
}

impl Labels for ByHost<Arc<str>> {
    fn values(&self) -> Vec<&str> {
        vec![self.method.as_str(), &self.host]
    }
}

impl Labels for ByCode<Arc<str>> {
    fn values(&self) -> Vec<&str> {
        vec![self.code.as_str(), self.method.as_str(), &self.host]
    }
}

impl Labels for ByResource<Arc<Endpoint>> {
    fn values(&self) -> Vec<&str> {
        let [group, version, resource, subresource] = self.resource.values();
        vec![self.verb.as_str(), group, version, resource, subresource]
    }
}

impl Labels for ByOutcome<Arc<Endpoint>> {
    fn values(&self) -> Vec<&str> {
        let [group, version, resource, subresource] = self.resource.values();
        let (verb, code, outcome) = (
            self.verb.as_str(),
            self.code.as_str(),
            self.outcome.as_str(),
        );
        vec![verb, group, version, resource, subresource, code, outcome]
    }
}

impl Labels for ByStream<Arc<Endpoint>> {
    fn values(&self) -> Vec<&str> {
        let [group, version, resource, subresource] = self.resource.values();
        vec![self.kind.as_str(), group, version, resource, subresource]
    }
}

impl Labels for ByEnd<Arc<Endpoint>> {
    fn values(&self) -> Vec<&str> {
        let [group, version, resource, subresource] = self.resource.values();
        let (kind, end) = (self.kind.as_str(), self.end.as_str());
        vec![kind, group, version, resource, subresource, end]
    }
}

impl Labels for Name<Arc<str>> {
    fn values(&self) -> Vec<&str> {
        vec![&self.0]
    }
}

impl Labels for NameAnd<Arc<str>> {
    fn values(&self) -> Vec<&str> {
        vec![&self.0, self.1]
    }
}

impl<const N: usize> Labels for Fixed<N> {
    fn values(&self) -> Vec<&str> {
        self.0.to_vec()
    }
}

impl Labels for ByInformer {
    fn values(&self) -> Vec<&str> {
        let InformerId {
            name,
            group,
            version,
            resource,
        } = &self.0;
        vec![name, group, version, resource]
    }
}
