//! `kubevitals transitions` on a simulated cluster, from its flags to its lines.

mod harness;
mod live;
mod outages;
mod program;
mod replicas;

pub(crate) use harness::{Cluster, LineCollector, RoleHarness};
