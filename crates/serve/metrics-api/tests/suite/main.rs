//! The public face of the API.
