//! What the hooks are told about a request.

use std::fmt;
use std::sync::Arc;

use http::{Method, StatusCode};

use crate::endpoint::Endpoint;

/// One request, as far as it may become a label: nothing in it names an object, a namespace or a
/// raw path.
///
/// A clone costs two reference counts and no allocation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// The HTTP method, which client-go calls the verb.
    pub method: HttpMethod,
    /// The server's host, with the port if its URL has one.
    pub host: Arc<str>,
    /// The Kubernetes verb, by the API server's rules.
    pub verb: Verb,
    /// What is asked for.
    pub endpoint: Arc<Endpoint>,
}

/// HTTP methods, a closed set: the others that HTTP allows share [`HttpMethod::Other`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// Kubernetes verbs of resources; requests for anything else have their method in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// `exec`, `attach`, `portforward` and `proxy`, whatever the method.
    Connect,
    /// No resource, `POST`.
    Post,
    /// No resource, `PUT`.
    Put,
    /// No resource, `HEAD`.
    Head,
    /// No resource, `OPTIONS`.
    Options,
    Other,
}

/// How an attempt was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// The server's status.
    Status(StatusCode),
    /// There was no answer: client-go's `<error>`.
    Error,
}

impl HttpMethod {
    /// The label value.
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
    /// The label value.
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
    /// The label value: three digits, or `<error>`.
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
