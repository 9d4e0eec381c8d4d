//! Side-by-side benchmarks: what a program costs, next to what its peers cost, in one run.
//!
//! Each benchmark is a program of its own in `src/bin`, run with `cargo xtask bench NAME`. What
//! they share is here:
//!
//! - [`contender`] starts a program under measure, reads its costs from outside and ends it by its
//!   process id;
//! - [`worker`] is the protocol of small contenders that do one thing many times over, in Rust and
//!   in Go;
//! - [`jobs`] measures such workers side by side;
//! - [`sim`] runs the simulated cluster in a process of its own;
//! - [`load`] applies an open-loop load over [`https`], so that a slow server is not asked less;
//! - [`measure`] repeats in turns and shows how quiet the machine was; [`campaign`] keeps what came
//!   of each turn, so that a long run can be taken up again;
//! - [`instructions`] counts what a hot path takes, and compares it with a record;
//! - [`serving`] is what benchmarks of servers of `metrics.k8s.io` share;
//! - [`timing`] is a loop for what is measured in the benchmark itself;
//! - [`table`] and [`result`] tell what came out, to a person and to a file.
//!
//! Ratios within one run are what counts; absolute figures change with the machine and with what
//! else it does.

pub mod campaign;
pub mod contender;
pub mod error;
pub mod flags;
pub mod go;
pub mod histogram;
pub mod https;
pub mod instructions;
pub mod jobs;
pub mod kubeconfig;
pub mod load;
pub mod machine;
pub mod measure;
pub mod pods;
pub mod proc;
pub mod result;
pub mod serving;
pub mod session;
pub mod sim;
pub mod table;
pub mod timing;
pub mod versions;
pub mod worker;

pub use error::BenchError;
