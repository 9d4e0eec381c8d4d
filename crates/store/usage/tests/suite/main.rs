//! The public face of the crate.
