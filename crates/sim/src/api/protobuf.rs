//! Kubernetes protobuf, for the small objects that Go clients always write in it.
//!
//! client-go writes typed objects in protobuf unless told otherwise. The questions that an
//! aggregated API server asks (`TokenReview`, `SubjectAccessReview`), what `kubectl auth` asks,
//! options of deletions, and leases are therefore understood in that form; anything else is
//! answered with 415, upon which a client may try JSON.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::status::ApiError;

/// The media type.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// Before the envelope.
const MAGIC: &[u8] = b"k8s\0";
/// Deeper messages than any kind has are refused.
const MAX_DEPTH: usize = 16;

/// How to read a field.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Texts,
    Flag,
    Number,
    Message(Fields),
    Messages(Fields),
    /// A map from text to text.
    TextMap,
    /// A map from text to lists of texts.
    TextsMap,
    /// `Time`: seconds and nanoseconds.
    Time,
    /// `MicroTime`.
    MicroTime,
}

type Fields = &'static [(u64, &'static str, Kind)];

const OWNER: Fields = &[
    (1, "kind", Kind::Text),
    (3, "name", Kind::Text),
    (4, "uid", Kind::Text),
    (5, "apiVersion", Kind::Text),
    (6, "controller", Kind::Flag),
    (7, "blockOwnerDeletion", Kind::Flag),
];
/// `managedFields` are left out: the server keeps its own.
const METADATA: Fields = &[
    (1, "name", Kind::Text),
    (2, "generateName", Kind::Text),
    (3, "namespace", Kind::Text),
    (5, "uid", Kind::Text),
    (6, "resourceVersion", Kind::Text),
    (7, "generation", Kind::Number),
    (8, "creationTimestamp", Kind::Time),
    (9, "deletionTimestamp", Kind::Time),
    (10, "deletionGracePeriodSeconds", Kind::Number),
    (11, "labels", Kind::TextMap),
    (12, "annotations", Kind::TextMap),
    (13, "ownerReferences", Kind::Messages(OWNER)),
    (14, "finalizers", Kind::Texts),
];
const TOKEN_REVIEW: Fields = &[
    (1, "metadata", Kind::Message(METADATA)),
    (
        2,
        "spec",
        Kind::Message(&[(1, "token", Kind::Text), (2, "audiences", Kind::Texts)]),
    ),
];
const TEXTS_ENTRY: Fields = &[
    (1, "k", Kind::Text),
    (2, "v", Kind::Message(&[(1, "items", Kind::Texts)])),
];
const REQUIREMENT: Fields = &[
    (1, "key", Kind::Text),
    (2, "operator", Kind::Text),
    (3, "values", Kind::Texts),
];
const SELECTOR: Fields = &[
    (1, "rawSelector", Kind::Text),
    (2, "requirements", Kind::Messages(REQUIREMENT)),
];
const RESOURCE: Fields = &[
    (1, "namespace", Kind::Text),
    (2, "verb", Kind::Text),
    (3, "group", Kind::Text),
    (4, "version", Kind::Text),
    (5, "resource", Kind::Text),
    (6, "subresource", Kind::Text),
    (7, "name", Kind::Text),
    (8, "fieldSelector", Kind::Message(SELECTOR)),
    (9, "labelSelector", Kind::Message(SELECTOR)),
];
const PATH: Fields = &[(1, "path", Kind::Text), (2, "verb", Kind::Text)];
const ACCESS_REVIEW: Fields = &[
    (1, "metadata", Kind::Message(METADATA)),
    (
        2,
        "spec",
        Kind::Message(&[
            (1, "resourceAttributes", Kind::Message(RESOURCE)),
            (2, "nonResourceAttributes", Kind::Message(PATH)),
            (3, "user", Kind::Text),
            (4, "groups", Kind::Texts),
            (5, "extra", Kind::TextsMap),
            (6, "uid", Kind::Text),
        ]),
    ),
];
const RULES_REVIEW: Fields = &[
    (1, "metadata", Kind::Message(METADATA)),
    (2, "spec", Kind::Message(&[(1, "namespace", Kind::Text)])),
];
const METADATA_ONLY: Fields = &[(1, "metadata", Kind::Message(METADATA))];
const DELETE_OPTIONS: Fields = &[
    (1, "gracePeriodSeconds", Kind::Number),
    (
        2,
        "preconditions",
        Kind::Message(&[(1, "uid", Kind::Text), (2, "resourceVersion", Kind::Text)]),
    ),
    (3, "orphanDependents", Kind::Flag),
    (4, "propagationPolicy", Kind::Text),
    (5, "dryRun", Kind::Texts),
];
const LEASE: Fields = &[
    (1, "metadata", Kind::Message(METADATA)),
    (
        2,
        "spec",
        Kind::Message(&[
            (1, "holderIdentity", Kind::Text),
            (2, "leaseDurationSeconds", Kind::Number),
            (3, "acquireTime", Kind::MicroTime),
            (4, "renewTime", Kind::MicroTime),
            (5, "leaseTransitions", Kind::Number),
            (6, "strategy", Kind::Text),
            (7, "preferredHolder", Kind::Text),
        ]),
    ),
];

/// Decodes an object in its envelope.
pub(crate) fn decode(bytes: &[u8]) -> Result<Value, ApiError> {
    let damaged = || ApiError::bad_request("the body of the request is not Kubernetes protobuf");
    let bytes = bytes.strip_prefix(MAGIC).ok_or_else(damaged)?;
    let envelope: Fields = &[(
        1,
        "typeMeta",
        Kind::Message(&[(1, "apiVersion", Kind::Text), (2, "kind", Kind::Text)]),
    )];
    let head = message(bytes, envelope, 0).ok_or_else(damaged)?;
    let (api_version, kind) = (&head["typeMeta"]["apiVersion"], &head["typeMeta"]["kind"]);
    let fields = match kind.as_str().unwrap_or_default() {
        "TokenReview" => TOKEN_REVIEW,
        "SubjectAccessReview" | "SelfSubjectAccessReview" | "LocalSubjectAccessReview" => {
            ACCESS_REVIEW
        }
        "SelfSubjectRulesReview" => RULES_REVIEW,
        "SelfSubjectReview" => METADATA_ONLY,
        "DeleteOptions" => DELETE_OPTIONS,
        "Lease" => LEASE,
        _ => {
            return Err(ApiError::unsupported_media_type(
                "application/json, application/yaml",
            ));
        }
    };
    let raw = fields_of(bytes)
        .ok_or_else(damaged)?
        .into_iter()
        .find_map(|(number, field)| match field {
            Field::Bytes(raw) if number == 2 => Some(raw),
            _ => None,
        })
        .unwrap_or_default();
    let mut object = message(raw, fields, 0).ok_or_else(damaged)?;
    object["apiVersion"] = api_version.clone();
    object["kind"] = kind.clone();
    Ok(object)
}

/// A field on the wire.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Fixed width, which no field in use has.
    Other,
}

fn fields_of(mut bytes: &[u8]) -> Option<Vec<(u64, Field<'_>)>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let field = match tag & 7 {
            0 => Field::Number(varint(&mut bytes)?),
            1 => {
                bytes = bytes.get(8..)?;
                Field::Other
            }
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                let (content, rest) = bytes.split_at_checked(length)?;
                bytes = rest;
                Field::Bytes(content)
            }
            5 => {
                bytes = bytes.get(4..)?;
                Field::Other
            }
            _ => return None,
        };
        fields.push((tag >> 3, field));
    }
    Some(fields)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f).checked_shl(shift)?;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn message(bytes: &[u8], schema: Fields, depth: usize) -> Option<Value> {
    if depth > MAX_DEPTH {
        return None;
    }
    let mut object = Map::new();
    for (number, field) in fields_of(bytes)? {
        let Some((_, name, kind)) = schema.iter().find(|(known, ..)| *known == number) else {
            continue;
        };
        let (name, kind) = (*name, *kind);
        match (kind, field) {
            (Kind::Flag, Field::Number(number)) => {
                object.insert(name.to_owned(), json!(number != 0));
            }
            (Kind::Number, Field::Number(number)) => {
                // Negative numbers are written as their two's complement.
                object.insert(name.to_owned(), json!(number.cast_signed()));
            }
            (Kind::Text, Field::Bytes(raw)) => {
                let text = std::str::from_utf8(raw).ok()?;
                // Required fields of Go are written even when empty.
                if !text.is_empty() {
                    object.insert(name.to_owned(), json!(text));
                }
            }
            (Kind::Texts, Field::Bytes(raw)) => {
                let text = std::str::from_utf8(raw).ok()?;
                push(&mut object, name, json!(text));
            }
            (Kind::Message(schema), Field::Bytes(raw)) => {
                object.insert(name.to_owned(), message(raw, schema, depth + 1)?);
            }
            (Kind::Messages(schema), Field::Bytes(raw)) => {
                let value = message(raw, schema, depth + 1)?;
                push(&mut object, name, value);
            }
            (Kind::TextMap, Field::Bytes(raw)) => {
                let entry = message(
                    raw,
                    &[(1, "k", Kind::Text), (2, "v", Kind::Text)],
                    depth + 1,
                )?;
                let value = entry.get("v").cloned().unwrap_or_else(|| json!(""));
                insert(&mut object, name, &entry, value);
            }
            (Kind::TextsMap, Field::Bytes(raw)) => {
                let entry = message(raw, TEXTS_ENTRY, depth + 1)?;
                let value = entry["v"]
                    .get("items")
                    .cloned()
                    .unwrap_or_else(|| json!([]));
                insert(&mut object, name, &entry, value);
            }
            (Kind::Time | Kind::MicroTime, Field::Bytes(raw)) => {
                if let Some(time) = time(raw, matches!(kind, Kind::MicroTime)) {
                    object.insert(name.to_owned(), json!(time));
                }
            }
            _ => return None,
        }
    }
    Some(Value::Object(object))
}

fn push(object: &mut Map<String, Value>, name: &str, value: Value) {
    let list = object.entry(name).or_insert_with(|| json!([]));
    if let Some(list) = list.as_array_mut() {
        list.push(value);
    }
}

fn insert(object: &mut Map<String, Value>, name: &str, entry: &Value, value: Value) {
    let key = entry["k"].as_str().unwrap_or_default().to_owned();
    let map = object.entry(name).or_insert_with(|| json!({}));
    if let Some(map) = map.as_object_mut() {
        map.insert(key, value);
    }
}

/// Nothing for the zero time, which Go writes for a missing one.
fn time(raw: &[u8], micros: bool) -> Option<String> {
    let value = message(
        raw,
        &[(1, "s", Kind::Number), (2, "n", Kind::Number)],
        MAX_DEPTH,
    )?;
    let seconds = value.get("s").and_then(Value::as_i64)?;
    let nanos = value.get("n").and_then(Value::as_i64).unwrap_or(0);
    let time = Timestamp::new(seconds, i32::try_from(nanos).ok()?).ok()?;
    let format = if micros {
        "%Y-%m-%dT%H:%M:%S.%6fZ"
    } else {
        "%Y-%m-%dT%H:%M:%SZ"
    };
    Some(time.strftime(format).to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2, u8::try_from(content.len()).unwrap()];
        out.extend_from_slice(content);
        out
    }

    fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [
            MAGIC.to_vec(),
            field(1, &meta),
            field(2, raw),
            field(3, b""),
            field(4, b""),
        ]
        .concat()
    }

    #[test]
    fn a_token_review_is_read() {
        let raw = [
            field(1, b""),
            field(
                2,
                &[field(1, b"secret"), field(2, b"a"), field(2, b"b")].concat(),
            ),
        ]
        .concat();
        let object = decode(&envelope("authentication.k8s.io/v1", "TokenReview", &raw)).unwrap();
        assert_eq!(
            object,
            json!({"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "metadata": {},
                   "spec": {"token": "secret", "audiences": ["a", "b"]}})
        );
    }

    #[test]
    fn an_access_review_keeps_its_extra() {
        let extra = [
            field(1, b"scopes"),
            field(2, &[field(1, b"x"), field(1, b"y")].concat()),
        ]
        .concat();
        let spec = [field(3, b"ann"), field(5, &extra)].concat();
        let object = decode(&envelope(
            "authorization.k8s.io/v1",
            "SubjectAccessReview",
            &field(2, &spec),
        ))
        .unwrap();
        assert_eq!(
            object["spec"],
            json!({"user": "ann", "extra": {"scopes": ["x", "y"]}})
        );
    }

    #[test]
    fn a_lease_keeps_its_microseconds() {
        // 1,700,000,000 s and 123,456,000 ns.
        let time = [
            0x08, 0x80, 0xe2, 0xcf, 0xaa, 0x06, 0x10, 0x80, 0x94, 0xef, 0x3a,
        ];
        let spec = [field(1, b"me"), vec![2 << 3, 40], field(4, &time)].concat();
        let object = decode(&envelope(
            "coordination.k8s.io/v1",
            "Lease",
            &field(2, &spec),
        ))
        .unwrap();
        assert_eq!(
            object["spec"],
            json!({"holderIdentity": "me", "leaseDurationSeconds": 40, "renewTime": "2023-11-14T22:13:20.123456Z"})
        );
    }

    #[test]
    fn other_kinds_are_for_json() {
        let error = decode(&envelope("v1", "Pod", b"")).unwrap_err();
        assert_eq!(error.code, 415);
        assert_eq!(decode(b"{}").unwrap_err().code, 400);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        #[test]
        fn arbitrary_bytes_never_panic(raw in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = decode(&envelope("coordination.k8s.io/v1", "Lease", &raw));
            let _ = decode(&[MAGIC.to_vec(), raw].concat());
        }
    }
}
