//! The wire format of a summary, borrowed from the body. Unused fields are skipped.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use kubevitals_model::Timestamp;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

#[derive(Debug, serde::Deserialize)]
pub(super) struct Summary<'a> {
    #[serde(borrow, default)]
    pub(super) node: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) pods: Items<'a>,
}

/// The items of a list as raw JSON, up to a limit.
#[derive(Debug, Default)]
pub(super) struct Items<'a> {
    pub(super) items: Vec<&'a RawValue>,
    pub(super) more: u64,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct NodeStats {
    pub(super) cpu: Part<Cpu>,
    pub(super) memory: Part<Memory>,
    pub(super) swap: Part<Swap>,
    pub(super) fs: Part<FileSystem>,
}

#[derive(Debug, serde::Deserialize)]
pub(super) struct PodStats<'a> {
    #[serde(borrow, rename = "podRef")]
    pub(super) reference: PodReference<'a>,
    #[serde(borrow, default)]
    pub(super) containers: Items<'a>,
}

#[derive(Debug, serde::Deserialize)]
pub(super) struct PodReference<'a> {
    #[serde(borrow)]
    pub(super) name: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) namespace: Cow<'a, str>,
}

#[derive(Debug, serde::Deserialize)]
pub(super) struct ContainerStats<'a> {
    #[serde(borrow)]
    pub(super) name: Cow<'a, str>,
    #[serde(rename = "startTime", default)]
    pub(super) started: Value<Timestamp>,
    #[serde(default)]
    pub(super) cpu: Part<Cpu>,
    #[serde(default)]
    pub(super) memory: Part<Memory>,
    #[serde(default)]
    pub(super) swap: Part<Swap>,
    #[serde(default)]
    pub(super) rootfs: Part<FileSystem>,
    #[serde(default)]
    pub(super) logs: Part<FileSystem>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct Cpu {
    pub(super) time: Value<Timestamp>,
    #[serde(rename = "usageNanoCores")]
    pub(super) now: Value<u64>,
    #[serde(rename = "usageCoreNanoSeconds")]
    pub(super) total: Value<u64>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct Memory {
    pub(super) time: Value<Timestamp>,
    #[serde(rename = "workingSetBytes")]
    pub(super) working_set: Value<u64>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct Swap {
    pub(super) time: Value<Timestamp>,
    #[serde(rename = "swapUsageBytes")]
    pub(super) usage: Value<u64>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct FileSystem {
    pub(super) time: Value<Timestamp>,
    #[serde(rename = "usedBytes")]
    pub(super) used: Value<u64>,
}

/// An object. Any other value counts as an empty one.
#[derive(Debug, Default)]
pub(super) struct Part<T>(pub(super) T);

/// A number or a timestamp. Any other value is distinguished from an absent one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Value<T> {
    #[default]
    Absent,
    Unreadable,
    Is(T),
}

struct ItemsVisitor;
struct PartVisitor<T>(PhantomData<T>);
struct ValueVisitor<T>(PhantomData<T>);

/// A type that a [`Value`] can hold.
pub(super) trait Readable: Sized {
    fn from_number(_: u64) -> Option<Self> {
        None
    }
    fn from_text(_: &str) -> Option<Self> {
        None
    }
}

/// Maximum number of pods of a node, and of containers of a pod.
const MAX_ITEMS: usize = 10_000;

impl<'de: 'a, 'a> Deserialize<'de> for Items<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ItemsVisitor)
    }
}

impl<'de> Visitor<'de> for ItemsVisitor {
    type Value = Items<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Items<'de>, A::Error> {
        let mut items = Items::default();
        while items.items.len() < MAX_ITEMS {
            match list.next_element()? {
                Some(item) => items.items.push(item),
                None => return Ok(items),
            }
        }
        while list.next_element::<IgnoredAny>()?.is_some() {
            items.more += 1;
        }
        Ok(items)
    }

    fn visit_unit<E>(self) -> Result<Items<'de>, E> {
        Ok(Items::default())
    }
}

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for Part<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PartVisitor(PhantomData))
    }
}

impl<'de, T: Deserialize<'de> + Default> Visitor<'de> for PartVisitor<T> {
    type Value = Part<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Part<T>, A::Error> {
        T::deserialize(serde::de::value::MapAccessDeserializer::new(map)).map(Part)
    }

    fn visit_unit<E>(self) -> Result<Part<T>, E> {
        Ok(Part(T::default()))
    }
}

impl<'de, T: Readable> Deserialize<'de> for Value<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor(PhantomData))
    }
}

impl<'de, T: Readable> Visitor<'de> for ValueVisitor<T> {
    type Value = Value<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value<T>, E> {
        Ok(T::from_number(number).map_or(Value::Unreadable, Value::Is))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value<T>, E> {
        Ok(T::from_text(text).map_or(Value::Unreadable, Value::Is))
    }

    fn visit_unit<E>(self) -> Result<Value<T>, E> {
        Ok(Value::Absent)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Value<T>, E> {
        Ok(Value::Unreadable)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Value<T>, E> {
        Ok(Value::Unreadable)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Value<T>, E> {
        Ok(Value::Unreadable)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value<T>, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Unreadable)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value<T>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Value::Unreadable)
    }
}

impl Readable for u64 {
    fn from_number(number: u64) -> Option<Self> {
        Some(number)
    }
}

impl Readable for Timestamp {
    fn from_text(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}
