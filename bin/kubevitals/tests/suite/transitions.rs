//! `kubevitals transitions` on a simulated cluster, from its flags to its lines.

mod families;
mod harness;
mod live;
mod options;
mod outages;
mod program;
mod replicas;
mod traces;

pub(crate) use harness::{Cluster, LineCollector, RoleHarness};
