//! What is made of JSON on its way out: indented, YAML, compressed.

pub(crate) mod gzip;
pub(crate) mod pretty_json;
pub(crate) mod yaml;
