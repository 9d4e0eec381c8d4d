//! Times in API objects.

use jiff::Timestamp as ApiTimestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use kubevitals_model::Timestamp;

/// A time in whole seconds, as the API server keeps it.
pub(crate) fn api_time(at: Timestamp) -> Time {
    let time = ApiTimestamp::from_second(at.unix_seconds());
    Time(time.unwrap_or(ApiTimestamp::UNIX_EPOCH))
}

/// A time with its fraction.
pub(crate) fn micro_time(at: Timestamp) -> MicroTime {
    let time = ApiTimestamp::from_millisecond(at.unix_millis());
    MicroTime(time.unwrap_or(ApiTimestamp::UNIX_EPOCH))
}

/// The time in whole seconds.
pub(crate) fn whole_seconds(time: &Time) -> Time {
    let seconds = time.0.as_second();
    Time(ApiTimestamp::from_second(seconds).unwrap_or(time.0))
}
