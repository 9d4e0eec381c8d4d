//! Reads conditions, which most kinds have in the same form.

use kubevitals_model::Condition;
use serde::Deserialize;

use crate::kind::Reading;
use crate::wire::{List, Text, Time};

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

pub(crate) fn conditions(
    list: List<ConditionWire<'_>>,
    reading: &mut Reading<'_>,
) -> Box<[Condition]> {
    list.map(|wire| Condition {
        kind: reading.pool.intern(&wire.r#type),
        status: (&*wire.status).into(),
        reason: reading.pool.intern_optional(&wire.reason),
        message: reading.pool.intern_optional(&wire.message),
        last_transition: wire.last_transition_time.0,
    })
}
