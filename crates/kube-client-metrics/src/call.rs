//! The description of a request that hooks receive.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use http::{Method, StatusCode};

use crate::endpoint::Endpoint;
use crate::hooks::Context;

/// One request, as far as it is safe for labels: without the names of objects or namespaces and
/// without raw paths. Calls are equal if all but their context is.
///
/// Cloning increments at most three reference counts and does not allocate.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Call {
    /// The HTTP method, which client-go calls the verb.
    pub method: HttpMethod,
    /// The host of the server, with the port if its URL has one.
    pub host: Arc<str>,
    /// The Kubernetes verb, by the API server's rules.
    pub verb: Verb,
    /// The requested resource or path.
    pub endpoint: Arc<Endpoint>,
    /// What the program has captured of the request, see
    /// [`RequestContext`](crate::hooks::RequestContext).
    pub context: Context,
}

/// HTTP methods, a closed set: all others are [`HttpMethod::Other`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[expect(missing_docs, reason = "they are named like the methods")]
pub enum HttpMethod {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
    Options,
    Other,
}

/// Kubernetes verbs; for requests of other paths than resources, the method in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[expect(missing_docs, reason = "they are named like the verbs")]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
    /// `exec`, `attach`, `portforward` and `proxy` with any method.
    Connect,
    /// `POST` of another path than a resource.
    Post,
    /// `PUT` of another path than a resource.
    Put,
    /// `HEAD` of another path than a resource.
    Head,
    /// `OPTIONS` of another path than a resource.
    Options,
    Other,
}

/// The status of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// The status of the response.
    Status(StatusCode),
    /// There was no response: client-go's `<error>`.
    Error,
}

impl PartialEq for Call {
    fn eq(&self, other: &Self) -> bool {
        self.method == other.method
            && self.verb == other.verb
            && self.endpoint == other.endpoint
            && self.host == other.host
    }
}

impl Eq for Call {}

impl Hash for Call {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.method, self.verb, &self.endpoint, &self.host).hash(state);
    }
}

impl HttpMethod {
    /// Returns the label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
            Self::Options => "OPTIONS",
            Self::Other => "other",
        }
    }
}

impl From<&Method> for HttpMethod {
    fn from(method: &Method) -> Self {
        match *method {
            Method::GET => Self::Get,
            Method::HEAD => Self::Head,
            Method::POST => Self::Post,
            Method::PUT => Self::Put,
            Method::PATCH => Self::Patch,
            Method::DELETE => Self::Delete,
            Method::OPTIONS => Self::Options,
            _ => Self::Other,
        }
    }
}

impl Verb {
    /// Returns the label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Connect => "connect",
            Self::Post => "post",
            Self::Put => "put",
            Self::Head => "head",
            Self::Options => "options",
            Self::Other => "other",
        }
    }
}

impl Code {
    /// Returns the label value: three digits, or `<error>`.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Status(status) => status.as_str(),
            Self::Error => "<error>",
        }
    }
}

impl fmt::Display for HttpMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<StatusCode> for Code {
    fn from(status: StatusCode) -> Self {
        Self::Status(status)
    }
}
