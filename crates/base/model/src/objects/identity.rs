//! The identity of an object and the version of its state.

use std::fmt;
use std::sync::Arc;

/// The names, UID and resource version of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Shared by all objects of the namespace; empty for cluster-scoped objects.
    pub namespace: Arc<str>,
    /// Can be shared with keys made of it.
    pub name: Arc<str>,
    /// Distinguishes objects that had the same name at different times.
    pub uid: Uid,
    pub resource_version: ResourceVersion,
}

/// The UID of an object: 16 bytes for a UUID in its usual spelling, which it nearly always is.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uid(UidRepr);

/// The resource version of an object or of a list.
///
/// It is sent back exactly as received. Equal versions of one object mean equal objects.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ResourceVersion(VersionRepr);

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum UidRepr {
    Uuid([u8; 16]),
    Other(Box<str>),
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum VersionRepr {
    Number(u64),
    Other(Box<str>),
}

impl Identity {
    /// Whether both identify the same object, in whatever state.
    pub fn is_same_object(&self, other: &Self) -> bool {
        self.uid == other.uid && self.name == other.name && self.namespace == other.namespace
    }

    /// Whether both identify the same state of the same object.
    pub fn is_same_state(&self, other: &Self) -> bool {
        !self.resource_version.is_empty()
            && self.resource_version == other.resource_version
            && self.is_same_object(other)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

impl Uid {
    /// Returns the 16 bytes if the UID is a UUID.
    pub fn as_uuid(&self) -> Option<&[u8; 16]> {
        match &self.0 {
            UidRepr::Uuid(bytes) => Some(bytes),
            UidRepr::Other(_) => None,
        }
    }
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        Self(parse_uuid(text).map_or_else(|| UidRepr::Other(text.into()), UidRepr::Uuid))
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            UidRepr::Uuid(bytes) => {
                for (index, byte) in bytes.iter().enumerate() {
                    if matches!(index, 4 | 6 | 8 | 10) {
                        f.write_str("-")?;
                    }
                    write!(f, "{byte:02x}")?;
                }
                Ok(())
            }
            UidRepr::Other(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uid({self})")
    }
}

impl ResourceVersion {
    /// Whether the server sent no version.
    pub fn is_empty(&self) -> bool {
        matches!(&self.0, VersionRepr::Other(text) if text.is_empty())
    }

    /// Returns the version as a number, if it is one. Since Kubernetes 1.35 numbers are guaranteed
    /// to be comparable.
    pub fn as_number(&self) -> Option<u64> {
        match &self.0 {
            VersionRepr::Number(number) => Some(*number),
            VersionRepr::Other(_) => None,
        }
    }
}

impl From<&str> for ResourceVersion {
    fn from(text: &str) -> Self {
        // `+1` and `01` are numbers too, but would not round-trip.
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
        Self(match text.parse() {
            Ok(number) if is_plain => VersionRepr::Number(number),
            _ => VersionRepr::Other(text.into()),
        })
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            VersionRepr::Number(number) => number.fmt(f),
            VersionRepr::Other(text) => text.fmt(f),
        }
    }
}

impl fmt::Debug for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ResourceVersion({self})")
    }
}

/// Parses a UUID in the one spelling that [`Uid`] prints: lower case, with hyphens.
fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    if text.len() != 36 {
        return None;
    }
    let mut bytes = [0; 16];
    let mut digits = text.bytes();
    for (index, byte) in bytes.iter_mut().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) && digits.next() != Some(b'-') {
            return None;
        }
        *byte = hex_digit(digits.next()?)? << 4 | hex_digit(digits.next()?)?;
    }
    Some(bytes)
}

fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_the_canonical_spelling_of_a_uuid_is_compact() {
        let small = Uid::from("b37f14a9-3bf4-458b-8cfd-e3c6a7a61b4a");
        assert!(small.as_uuid().is_some());
        for other in [
            "",
            "b37f14a93bf4458b8cfde3c6a7a61b4a",
            "B37F14A9-3bf4-458b-8cfd-e3c6a7a61b4a",
            "b37f14a9-3bf4-458b-8cfd-e3c6a7a61b4é",
        ] {
            assert!(Uid::from(other).as_uuid().is_none(), "{other}");
        }
    }

    #[test]
    fn sizes_stay_small() {
        assert_eq!(size_of::<Uid>(), 24);
        assert_eq!(size_of::<ResourceVersion>(), 16);
        assert_eq!(size_of::<Identity>(), 72);
    }

    #[test]
    fn an_object_without_a_version_is_never_the_same_state() {
        let identity = Identity {
            namespace: "".into(),
            name: "a".into(),
            uid: "1".into(),
            resource_version: "".into(),
        };
        assert!(!identity.is_same_state(&identity));
        assert!(identity.is_same_object(&identity));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn versions_and_uids_round_trip(text in "\\PC{0,40}|[0-9]{0,24}|[0-9a-f-]{36}") {
            prop_assert_eq!(ResourceVersion::from(text.as_str()).to_string(), text.clone());
            prop_assert_eq!(Uid::from(text.as_str()).to_string(), text);
        }

        #[test]
        fn uuids_round_trip(bytes: [u8; 16]) {
            let uid = Uid(UidRepr::Uuid(bytes));
            let read = Uid::from(uid.to_string().as_str());
            prop_assert_eq!(read.as_uuid(), Some(&bytes));
        }
    }
}
