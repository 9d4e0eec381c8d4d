//! Parts of objects, borrowed from the JSON.
//!
//! Every object is decoded into borrowed structs that name only the fields in use: serde's derived
//! code skips the rest, `managedFields` above all, without building anything. The objects are then
//! built of these with the interner locked once. As in Go, an absent field, `null` and the zero
//! value all mean the same.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use kubevitals_model::Timestamp;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// A string; borrowed from the input unless it holds escapes.
#[derive(Debug, Default, Clone)]
pub(crate) struct Text<'a>(Cow<'a, str>);

/// A list.
#[derive(Debug)]
pub(crate) struct List<T>(pub(crate) Vec<T>);

/// An object that may be `null`. Derived code would also accept a list of fields in order, which no
/// server writes.
#[derive(Debug, Default)]
pub(crate) struct Struct<T>(pub(crate) T);

/// The parts of most objects.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(
    default,
    bound(
        deserialize = "M: Deserialize<'de> + Default, S: Deserialize<'de> + Default, \
                         T: Deserialize<'de> + Default"
    )
)]
pub(crate) struct ObjectWire<M, S, T> {
    pub(crate) metadata: Struct<M>,
    pub(crate) spec: Struct<S>,
    pub(crate) status: Struct<T>,
}

/// A map from string to string.
#[derive(Debug, Default)]
pub(crate) struct Map<'a>(pub(crate) Vec<(Text<'a>, Text<'a>)>);

/// A time; empty and Go's zero time are none.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Time(pub(crate) Option<Timestamp>);

struct TextVisitor;
struct ListVisitor<T>(PhantomData<T>);
struct StructVisitor<T>(PhantomData<T>);
struct MapVisitor;
struct TimeVisitor;

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> List<T> {
    /// Into a place of just the right size. Collecting would take over the room of the list, and
    /// copy out of it to give back most of it.
    pub(crate) fn map<U>(self, each: impl FnMut(T) -> U) -> Box<[U]> {
        let mut made = Vec::with_capacity(self.0.len());
        made.extend(self.0.into_iter().map(each));
        made.into_boxed_slice()
    }
}

impl Map<'_> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Text::default())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ListVisitor(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
    type Value = List<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            push(&mut list, item);
        }
        Ok(List(list))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(List::default())
    }
}

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for Struct<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StructVisitor(PhantomData))
    }
}

impl<'de, T: Deserialize<'de> + Default> Visitor<'de> for StructVisitor<T> {
    type Value = Struct<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(fields)).map(Struct)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Struct::default())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Map<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MapVisitor)
    }
}

impl<'de> Visitor<'de> for MapVisitor {
    type Value = Map<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map from string to string")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            push(&mut map, entry);
        }
        Ok(Map(map))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Map::default())
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TimeVisitor)
    }
}

impl Visitor<'_> for TimeVisitor {
    type Value = Time;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        if text.is_empty() {
            return Ok(Time::default());
        }
        let time = text.parse().map_err(E::custom)?;
        Ok(Time((time != Timestamp::GO_ZERO).then_some(time)))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Time::default())
    }
}

/// Room for what most lists have is made at once: it is soon given back, and growing would copy.
fn push<T>(list: &mut Vec<T>, item: T) {
    const FIRST: usize = 8;
    if list.capacity() == 0 {
        list.reserve_exact(FIRST);
    }
    list.push(item);
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct Sample<'a> {
        #[serde(borrow)]
        text: Text<'a>,
        #[serde(borrow)]
        list: List<Text<'a>>,
        #[serde(borrow)]
        map: Map<'a>,
        time: Time,
        inner: Struct<Inner>,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct Inner {
        number: i64,
    }

    #[test]
    fn absent_null_and_empty_are_the_same() {
        for json in [
            "{}",
            r#"{"text":null,"list":null,"map":null,"time":null,"inner":null}"#,
            r#"{"text":"","list":[],"map":{},"time":"","inner":{}}"#,
            r#"{"time":"0001-01-01T00:00:00Z"}"#,
        ] {
            let sample: Sample<'_> = serde_json::from_str(json).unwrap();
            assert!(sample.text.is_empty() && sample.list.0.is_empty(), "{json}");
            assert!(sample.map.0.is_empty() && sample.time.0.is_none(), "{json}");
            assert_eq!(sample.inner.0.number, 0, "{json}");
        }
    }

    #[test]
    fn strings_are_borrowed_unless_escaped() {
        let sample: Sample<'_> =
            serde_json::from_str(r#"{"text":"plain","list":["a\u003eb"],"inner":{"number":3}}"#)
                .unwrap();
        assert!(matches!(sample.text.0, Cow::Borrowed("plain")));
        assert_eq!(&*sample.list.0[0], "a>b");
        assert_eq!(sample.inner.0.number, 3);
    }

    #[test]
    fn the_wrong_type_is_rejected() {
        for json in [
            r#"{"text":1}"#,
            r#"{"list":{}}"#,
            r#"{"map":[]}"#,
            r#"{"time":"soon"}"#,
        ] {
            assert!(serde_json::from_str::<Sample<'_>>(json).is_err(), "{json}");
        }
    }
}
