//! Encodings of the Kubernetes API that are independent of a resource, for implementations of
//! resources.
//!
//! Protobuf of Kubernetes is that of Go: fields that are not pointers are written even if they are
//! empty. These helpers write every field, so that a resource can be byte for byte what a Go server
//! sends.

pub mod envelope;
pub mod json;
pub mod meta;

pub use kubevitals_protobuf as protobuf;
