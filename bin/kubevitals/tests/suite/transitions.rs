//! `kubevitals transitions` on a simulated cluster, from its flags to its lines.

mod follower;
mod live;
mod outages;

pub(crate) use follower::{Cluster, Follower, Sink};
