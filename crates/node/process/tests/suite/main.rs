//! Tests with real processes, sockets and, where they are permitted, cgroups.

mod adoption;
mod churn;
mod harness;
mod health;
mod lifecycle;
mod limits;
mod order;
mod sessions;
mod volumes;
