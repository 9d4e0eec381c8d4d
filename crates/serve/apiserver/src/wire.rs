//! Bytes of the Kubernetes API that do not depend on a resource, for those who write resources.
//!
//! Kubernetes' protobuf is that of Go: fields which are not pointers are written even if they are
//! empty. These helpers write what they are told, so that a resource can be byte for byte what a Go
//! server sends.

pub mod envelope;
pub mod json;
pub mod meta;

pub use kubevitals_protobuf as protobuf;
