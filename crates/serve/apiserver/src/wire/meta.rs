//! Metadata of objects and lists in protobuf, as Go writes it.

use super::protobuf::{put_entry, put_int, put_message, put_str};

/// The metadata of an object, with the fields that aggregated APIs have.
#[derive(Debug, Clone, Copy, Default)]
pub struct ObjectMeta<'a> {
    pub name: &'a str,
    /// Empty for cluster-scoped objects.
    pub namespace: &'a str,
    /// Empty if the API has none.
    pub resource_version: &'a str,
    /// Seconds since 1970; `None` is written as Go's zero time.
    pub creation_seconds: Option<i64>,
    /// In the order in which they are written: Go sorts them by key.
    pub labels: &'a [(&'a str, &'a str)],
    /// In the order in which they are written.
    pub annotations: &'a [(&'a str, &'a str)],
}

impl ObjectMeta<'_> {
    /// Writes it as the field of a message.
    pub fn put(&self, out: &mut Vec<u8>, field: u32) {
        put_message(out, field, |out| {
            put_str(out, 1, self.name);
            put_str(out, 2, "");
            put_str(out, 3, self.namespace);
            put_str(out, 4, "");
            put_str(out, 5, "");
            put_str(out, 6, self.resource_version);
            put_int(out, 7, 0);
            put_time(out, 8, self.creation_seconds);
            for (key, value) in self.labels {
                put_entry(out, 11, key, value);
            }
            for (key, value) in self.annotations {
                put_entry(out, 12, key, value);
            }
        });
    }
}

/// Writes the metadata of a list as the field of a message.
pub fn put_list_meta(out: &mut Vec<u8>, field: u32, resource_version: &str) {
    put_message(out, field, |out| {
        put_str(out, 1, "");
        put_str(out, 2, resource_version);
        put_str(out, 3, "");
    });
}

/// Writes a `Time` to the second as the field of a message; the zero time is an empty message.
pub fn put_time(out: &mut Vec<u8>, field: u32, seconds: Option<i64>) {
    put_message(out, field, |out| {
        if let Some(seconds) = seconds {
            put_int(out, 1, seconds);
            put_int(out, 2, 0);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_what_go_sends() {
        // The head of a `PartialObjectMetadata` that a Go server sent.
        let labels = [("beta.kubernetes.io/arch", "amd64")];
        let meta = ObjectMeta {
            name: "node-00000",
            creation_seconds: Some(1_794_792_566),
            labels: &labels,
            ..ObjectMeta::default()
        };
        let mut out = Vec::new();
        meta.put(&mut out, 1);
        let expected: &[u8] = b"\x0a\x44\x0a\x0anode-00000\x12\0\x1a\0\x22\0\x2a\0\x32\0\x38\0\
            \x42\x08\x08\xf6\xb8\xe9\xd7\x06\x10\0\x5a\x20\x0a\x17beta.kubernetes.io/arch\x12\x05amd64";
        assert_eq!(out, expected);
    }
}
