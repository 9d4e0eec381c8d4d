//! From a request to the [`Call`] that hooks are told.

use std::sync::Arc;

use http::{Method, Uri};

use crate::endpoint::Endpoints;
use crate::request_info::{RequestInfo, SUBRESOURCES, Target};
use crate::{Call, HttpMethod};

/// Tells what requests to one server ask for. Clones share what they have seen.
#[derive(Clone, Debug)]
pub struct Classifier {
    host: Arc<str>,
    subresources: Arc<[Box<str>]>,
    endpoints: Arc<Endpoints>,
}

impl Classifier {
    /// How many endpoints are told apart unless [another limit](Self::with_limit) is set.
    pub const DEFAULT_LIMIT: usize = 1024;

    /// For requests to this host, which is the value of the label: with the port if the server's
    /// URL has one.
    pub fn new(host: impl Into<Arc<str>>) -> Self {
        Self {
            host: host.into(),
            subresources: Arc::new([]),
            endpoints: Arc::new(Endpoints::new(Self::DEFAULT_LIMIT)),
        }
    }

    /// Tells at most this many endpoints apart; a resource takes one for each form of path that it
    /// is asked with, so mostly two or three. The rest is `other`.
    #[must_use]
    pub fn with_limit(self, limit: usize) -> Self {
        Self {
            endpoints: Arc::new(Endpoints::new(limit)),
            ..self
        }
    }

    /// Knows these subresources besides those that Kubernetes has; the rest is `other`.
    ///
    /// A closed set, because the place of a subresource is also that of a name in many a misspelt
    /// path.
    #[must_use]
    pub fn with_subresources<S: Into<Box<str>>>(
        self,
        subresources: impl IntoIterator<Item = S>,
    ) -> Self {
        Self {
            subresources: subresources.into_iter().map(Into::into).collect(),
            ..self
        }
    }

    /// What a request with this method and URL asks for. The path is as the client wrote it,
    /// without the path of the server's own URL.
    pub fn call(&self, method: &Method, uri: &Uri) -> Call {
        let RequestInfo { verb, mut target } = RequestInfo::of(method, uri.path(), uri.query());
        if let Target::Resource(path) = &mut target
            && !path.subresource.is_empty()
            && !self.knows(path.subresource)
        {
            path.subresource = "other";
        }
        Call {
            method: HttpMethod::from(method),
            host: Arc::clone(&self.host),
            verb,
            endpoint: self.endpoints.get(&target),
        }
    }

    fn knows(&self, subresource: &str) -> bool {
        SUBRESOURCES.contains(&subresource)
            || self
                .subresources
                .iter()
                .any(|known| **known == *subresource)
    }
}
