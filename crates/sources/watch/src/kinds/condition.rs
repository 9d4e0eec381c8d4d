//! Conditions, which most kinds have in the same form.

use std::sync::Arc;

use kubevitals_model::Timestamp;
use serde::Deserialize;

use crate::kind::Reading;
use crate::wire::{List, Text, Time};

/// One aspect of an object's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Its type, such as `Ready`.
    pub kind: Arc<str>,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Why, as one word.
    pub reason: Option<Arc<str>>,
    /// Why, for people.
    pub message: Option<Arc<str>>,
    /// Since when it has had this status, in whole seconds.
    pub last_transition: Option<Timestamp>,
}

/// Whether a condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not.
    False,
    /// Nobody knows; also any status that this program does not know.
    Unknown,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ConditionWire<'a> {
    #[serde(borrow)]
    r#type: Text<'a>,
    #[serde(borrow)]
    status: Text<'a>,
    #[serde(borrow)]
    reason: Text<'a>,
    #[serde(borrow)]
    message: Text<'a>,
    last_transition_time: Time,
}

impl Condition {
    /// The condition of a type among others.
    pub fn find<'c>(conditions: &'c [Self], kind: &str) -> Option<&'c Self> {
        conditions.iter().find(|condition| &*condition.kind == kind)
    }

    /// Whether it holds.
    pub fn is_true(&self) -> bool {
        self.status == ConditionStatus::True
    }
}

impl ConditionStatus {
    /// As the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }

    fn read(text: &str) -> Self {
        match text {
            "True" => Self::True,
            "False" => Self::False,
            _ => Self::Unknown,
        }
    }
}

pub(crate) fn conditions(
    list: List<ConditionWire<'_>>,
    reading: &mut Reading<'_>,
) -> Box<[Condition]> {
    list.map(|wire| Condition {
        kind: reading.pool.text(&wire.r#type),
        status: ConditionStatus::read(&wire.status),
        reason: reading.pool.optional(&wire.reason),
        message: reading.pool.optional(&wire.message),
        last_transition: wire.last_transition_time.0,
    })
}
