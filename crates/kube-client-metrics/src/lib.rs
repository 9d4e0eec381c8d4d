//! What client-go tells about its requests, for every program that is built on kube.
//!
//! - [`hooks`]: small traits that are told what happens; [`Hooks`] is one of each.
//! - [`Call`]: what they are told about a request: nothing in it names an object, a namespace or a raw path.

mod call;
mod endpoint;
mod error;
pub mod hooks;
pub mod lease;
#[cfg(feature = "prometheus")]
pub mod prometheus;
#[cfg(feature = "runtime")]
pub mod queue;

pub use call::{Call, Code, HttpMethod, Verb};
pub use endpoint::Endpoint;
pub use error::Error;
pub use hooks::{Hooks, global, register};
#[cfg(feature = "prometheus")]
pub use prometheus::Registry;
