//! Converts requests to [`Call`]s.

use std::sync::Arc;

use http::{Method, Uri};

use crate::endpoint::Endpoints;
use crate::hooks::Context;
use crate::request_info::{RequestInfo, SUBRESOURCES, Target};
use crate::{Call, HttpMethod};

/// Classifies the requests to one server. Clones share their table of endpoints.
#[derive(Clone, Debug)]
pub struct Classifier {
    host: Arc<str>,
    subresources: Arc<[Box<str>]>,
    endpoints: Arc<Endpoints>,
}

impl Classifier {
    /// The default [limit](Self::with_limit) on endpoints.
    pub const DEFAULT_LIMIT: usize = 1024;

    /// Creates a classifier for requests to this host, which is the value of the label `host`: with
    /// the port if the server's URL has one.
    pub fn new(host: impl Into<Arc<str>>) -> Self {
        Self {
            host: host.into(),
            subresources: Arc::new([]),
            endpoints: Arc::new(Endpoints::new(Self::DEFAULT_LIMIT)),
        }
    }

    /// Sets the limit on endpoints; the rest is `other`. A resource has one endpoint for each form
    /// of its path, usually two or three.
    #[must_use]
    pub fn with_limit(self, limit: usize) -> Self {
        Self {
            endpoints: Arc::new(Endpoints::new(limit)),
            ..self
        }
    }

    /// Adds subresources to those of Kubernetes; all others are `other`.
    ///
    /// The set is closed because a misspelt path may have a name where the subresource should be.
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

    /// Classifies a request with this method and URL. The path is that of the API, without the path
    /// of the server's URL.
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
            context: Context::default(),
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
