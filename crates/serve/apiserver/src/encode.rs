//! Encodings of JSON responses: indented, YAML, compressed.

pub(crate) mod gzip;
pub(crate) mod pretty_json;
pub(crate) mod yaml;
