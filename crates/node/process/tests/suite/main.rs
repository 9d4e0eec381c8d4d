//! Tests with real processes, sockets and, where they are permitted, cgroups.

mod adoption;
mod harness;
mod lifecycle;
