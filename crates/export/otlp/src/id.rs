//! IDs of traces and spans, derived from the UID of a pod.

use std::fmt;

use kubevitals_model::{Uid, fnv1a};

/// The ID of a trace, never zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TraceId([u8; 16]);

/// The ID of a span, never zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpanId([u8; 8]);

impl TraceId {
    /// The 16 bytes of a UID, so that a trace can be found by the UID of its pod; a hash where it
    /// is no UUID.
    pub fn of(uid: &Uid) -> Self {
        if let Some(bytes) = uid.as_uuid().filter(|bytes| **bytes != [0; 16]) {
            return Self(*bytes);
        }
        let text = uid.to_string();
        let low = mixed(fnv1a(text.as_bytes()));
        let high = mixed(fnv1a(format!("{text}/").as_bytes()));
        let mut bytes = [0; 16];
        let (left, right) = bytes.split_at_mut(8);
        left.copy_from_slice(&high.to_be_bytes());
        right.copy_from_slice(&low.to_be_bytes());
        Self(bytes)
    }

    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The ID of the span of this trace with a name of its own.
    pub(crate) fn span(&self, name: fmt::Arguments<'_>) -> SpanId {
        let mut input = self.0.to_vec();
        input.extend_from_slice(name.to_string().as_bytes());
        SpanId(mixed(fnv1a(&input)).to_be_bytes())
    }
}

impl SpanId {
    #[cfg(test)]
    pub(crate) const fn new(bytes: [u8; 8]) -> Self {
        Self(bytes)
    }

    pub const fn as_bytes(&self) -> &[u8; 8] {
        &self.0
    }
}

/// Spreads the bits of a hash: receivers sample by some of them. Never zero.
fn mixed(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    (hash ^ (hash >> 33)).max(1)
}

fn hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_of_every_version() {
        let trace = TraceId::of(&"b37f14a9-3bf4-458b-8cfd-e3c6a7a61b4a".into());
        assert_eq!(trace.to_string(), "b37f14a93bf4458b8cfde3c6a7a61b4a");
        let span = trace.span(format_args!("start"));
        assert_eq!(span.to_string(), "c19ee748f2a4059d");
        assert_ne!(span, trace.span(format_args!("container/app")));
        let other = TraceId::of(&"not-a-uuid".into());
        assert_eq!(other.to_string(), "0a03b2a9e63968aad377f3cac339fc9d");
    }

    #[test]
    fn an_id_is_never_zero() {
        let zero = TraceId::of(&"00000000-0000-0000-0000-000000000000".into());
        assert_ne!(zero.as_bytes(), &[0; 16]);
        assert_ne!(mixed(0), 0);
    }
}
