//! Fakes of Google Cloud on real sockets: Cloud Monitoring, which enforces the real rules, and the
//! servers that give out tokens.

mod errors;
mod identity;
mod monitoring;
mod rules;
mod serve;

pub use identity::{GoogleIdentity, IdentityRequest};
pub use monitoring::{
    CloudMonitoring, MessageStyle, MonitoringFault, ReceivedCall, ReceivedSeries, WrittenPoint,
};
