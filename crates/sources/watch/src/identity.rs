//! What tells one object from another, and one state of it from the next.

use std::fmt;
use std::sync::Arc;

/// The names of an object, and which state of it this is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The namespace, shared by all its objects; empty for objects that have none.
    pub namespace: Arc<str>,
    /// The name, which can be shared with keys made of it.
    pub name: Arc<str>,
    /// Tells an object from another that had or will have the same name.
    pub uid: Uid,
    /// Tells the states of one object apart.
    pub resource_version: ResourceVersion,
}

/// The UID of an object: 16 bytes if it is a UUID in its usual spelling, which it nearly always is.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uid(UidForm);

/// A version that the server gave to a state of an object, or to a whole list.
///
/// It is handed back as it came. Equal versions of one object mean equal objects.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ResourceVersion(VersionForm);

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum UidForm {
    Uuid([u8; 16]),
    Other(Box<str>),
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum VersionForm {
    Number(u64),
    Other(Box<str>),
}

impl Identity {
    /// Whether both are states of one object.
    pub fn is_same_object(&self, other: &Self) -> bool {
        self.uid == other.uid && self.name == other.name && self.namespace == other.namespace
    }

    /// Whether both are one state of one object.
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
    /// The 16 bytes, if it is a UUID.
    pub fn as_uuid(&self) -> Option<&[u8; 16]> {
        match &self.0 {
            UidForm::Uuid(bytes) => Some(bytes),
            UidForm::Other(_) => None,
        }
    }
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        Self(parse_uuid(text).map_or_else(|| UidForm::Other(text.into()), UidForm::Uuid))
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            UidForm::Uuid(bytes) => {
                for (index, byte) in bytes.iter().enumerate() {
                    if matches!(index, 4 | 6 | 8 | 10) {
                        f.write_str("-")?;
                    }
                    write!(f, "{byte:02x}")?;
                }
                Ok(())
            }
            UidForm::Other(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uid({self})")
    }
}

impl ResourceVersion {
    /// Whether the server gave none.
    pub fn is_empty(&self) -> bool {
        matches!(&self.0, VersionForm::Other(text) if text.is_empty())
    }

    /// The version as a number, if it is one. Servers since Kubernetes 1.35 promise that these can
    /// be compared.
    pub fn as_number(&self) -> Option<u64> {
        match &self.0 {
            VersionForm::Number(number) => Some(*number),
            VersionForm::Other(_) => None,
        }
    }
}

impl From<&str> for ResourceVersion {
    fn from(text: &str) -> Self {
        // `+1` and `01` are numbers too, but would come back spelt otherwise.
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
        Self(match text.parse() {
            Ok(number) if is_plain => VersionForm::Number(number),
            _ => VersionForm::Other(text.into()),
        })
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            VersionForm::Number(number) => number.fmt(f),
            VersionForm::Other(text) => text.fmt(f),
        }
    }
}

impl fmt::Debug for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ResourceVersion({self})")
    }
}

/// The bytes of a UUID in the one spelling that [`Uid`] prints: lower case, with hyphens.
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
    fn only_the_usual_spelling_of_a_uuid_is_made_small() {
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
    fn an_object_without_a_version_is_never_known_to_be_the_same_state() {
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
        fn versions_and_uids_come_back_as_they_went_in(text in "\\PC{0,40}|[0-9]{0,24}|[0-9a-f-]{36}") {
            prop_assert_eq!(ResourceVersion::from(text.as_str()).to_string(), text.clone());
            prop_assert_eq!(Uid::from(text.as_str()).to_string(), text);
        }

        #[test]
        fn uuids_come_back_as_they_went_in(bytes: [u8; 16]) {
            let uid = Uid(UidForm::Uuid(bytes));
            let read = Uid::from(uid.to_string().as_str());
            prop_assert_eq!(read.as_uuid(), Some(&bytes));
        }
    }
}
