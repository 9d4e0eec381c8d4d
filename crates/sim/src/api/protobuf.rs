//! Kubernetes protobuf, for the small objects that Go clients send in it.
//!
//! client-go encodes typed objects in protobuf unless configured otherwise. The reviews of an
//! aggregated API server (`TokenReview`, `SubjectAccessReview`), the objects that `kubectl auth`
//! and `kubectl create` send, delete options, leases and events are therefore supported. Other
//! kinds and unknown fields get 415, so that nothing is lost silently.

#![expect(
    clippy::indexing_slicing,
    reason = "JSON trees: a missing member reads as null, and all writes go to objects"
)]

mod schema;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::status::ApiError;
use schema::{Fields, Kind, TEXTS_ENTRY};

pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// The smallest `OpenAPI` v2 document, in the only encoding that `kubectl` requests: version 2.0, a
/// title and nothing else. Clients then skip validation.
pub(crate) const OPENAPI_V2: &[u8] =
    b"\x0a\x032.0\x12\x15\x0a\x0aKubernetes\x12\x07v1.37.1\x42\x00\x4a\x00";
/// Its media type, as requested and as returned.
pub(crate) const OPENAPI_V2_TYPES: (&str, &str) = (
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
);

/// Prefix of the envelope.
const MAGIC: &[u8] = b"k8s\0";
/// Limit of nesting; no supported kind is deeper.
const MAX_DEPTH: usize = 16;

/// Decodes an object in its envelope.
pub(crate) fn decode(bytes: &[u8]) -> Result<Value, ApiError> {
    let damaged = || ApiError::bad_request("the body of the request is not Kubernetes protobuf");
    let bytes = bytes.strip_prefix(MAGIC).ok_or_else(damaged)?;
    let envelope: Fields = &[
        (2, "raw", Kind::Ignored),
        (3, "contentEncoding", Kind::Ignored),
        (4, "contentType", Kind::Ignored),
        (
            1,
            "typeMeta",
            Kind::Message(&[(1, "apiVersion", Kind::Text), (2, "kind", Kind::Text)]),
        ),
    ];
    let head = message(bytes, envelope, 0).ok_or_else(damaged)?;
    let (api_version, kind) = (&head["typeMeta"]["apiVersion"], &head["typeMeta"]["kind"]);
    let fields = match kind.as_str().unwrap_or_default() {
        "TokenReview" => schema::TOKEN_REVIEW,
        "SubjectAccessReview" | "SelfSubjectAccessReview" | "LocalSubjectAccessReview" => {
            schema::ACCESS_REVIEW
        }
        "SelfSubjectRulesReview" => schema::RULES_REVIEW,
        "SelfSubjectReview" => schema::SELF_REVIEW,
        "Namespace" => schema::NAMESPACE,
        "ConfigMap" => schema::CONFIG_MAP,
        "Secret" => schema::SECRET,
        "ServiceAccount" => schema::SERVICE_ACCOUNT,
        "TokenRequest" => schema::TOKEN_REQUEST,
        "Event" if *api_version == "v1" => schema::EVENT,
        "DeleteOptions" => schema::DELETE_OPTIONS,
        "Lease" => schema::LEASE,
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
    // An unknown field must not get lost silently.
    let mut object = message(raw, fields, 0)
        .ok_or_else(|| ApiError::unsupported_media_type("application/json, application/yaml"))?;
    object["apiVersion"] = api_version.clone();
    object["kind"] = kind.clone();
    Ok(object)
}

/// A field on the wire.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// A fixed-width field, which no supported field uses.
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

/// Decodes a message; `None` if it is malformed or has an unknown field.
fn message(bytes: &[u8], schema: Fields, depth: usize) -> Option<Value> {
    if depth > MAX_DEPTH {
        return None;
    }
    let mut object = Map::new();
    for (number, field) in fields_of(bytes)? {
        let (_, name, kind) = *schema.iter().find(|(candidate, ..)| *candidate == number)?;
        match (kind, field) {
            (Kind::Flag, Field::Number(number)) => {
                object.insert(name.to_owned(), json!(number != 0));
            }
            (Kind::Number, Field::Number(number)) => {
                // Negative numbers are encoded as two's complement.
                object.insert(name.to_owned(), json!(number.cast_signed()));
            }
            (Kind::Text, Field::Bytes(raw)) => {
                let text = std::str::from_utf8(raw).ok()?;
                // Go encodes required fields even if they are empty.
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
            (Kind::Ignored, _) => {}
            (Kind::BytesMap, Field::Bytes(raw)) => {
                let mut key = "";
                let mut value = String::new();
                for (number, field) in fields_of(raw)? {
                    match (number, field) {
                        (1, Field::Bytes(raw)) => key = std::str::from_utf8(raw).ok()?,
                        (2, Field::Bytes(raw)) => value = STANDARD.encode(raw),
                        _ => return None,
                    }
                }
                insert(&mut object, name, &json!({"k": key}), json!(value));
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

/// Formats a time; `None` for the zero time, which Go encodes for a missing one.
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
    fn a_token_review_is_decoded() {
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
    fn other_kinds_are_unsupported() {
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
