//! Conditions, which most kinds have in the same form.

use std::sync::Arc;

use crate::timestamp::Timestamp;

/// One condition of an object's status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// The type, such as `Ready`.
    pub kind: Arc<str>,
    pub status: ConditionStatus,
    /// A CamelCase word for programs.
    pub reason: Option<Arc<str>>,
    /// A sentence for people.
    pub message: Option<Arc<str>>,
    /// When the status last changed, in whole seconds.
    pub last_transition: Option<Timestamp>,
}

/// The status of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConditionStatus {
    True,
    False,
    /// Also any status that this program does not know.
    Unknown,
}

impl Condition {
    /// Returns the condition of a type.
    pub fn find<'c>(conditions: &'c [Self], kind: &str) -> Option<&'c Self> {
        conditions.iter().find(|condition| &*condition.kind == kind)
    }

    pub fn is_true(&self) -> bool {
        self.status == ConditionStatus::True
    }
}

impl ConditionStatus {
    /// The text that the API uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<&str> for ConditionStatus {
    fn from(text: &str) -> Self {
        match text {
            "True" => Self::True,
            "False" => Self::False,
            _ => Self::Unknown,
        }
    }
}
