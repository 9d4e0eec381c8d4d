//! A kit for aggregated Kubernetes API servers: everything but the resources.

mod body;
mod resource;

pub use body::{Body, BodyError};
pub use resource::{
    ApiGroup, ApiResource, Encoding, Form, GetRequest, IncludeObject, ListRequest, Refusal,
    ResourceFacts, Shape, WatchRequest,
};
