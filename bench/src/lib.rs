//! Side-by-side benchmarks: the cost of a program next to that of its peers, in one run.
//!
//! Each benchmark is a program in `src/bin`, run with `cargo xtask bench NAME`. Shared parts:
//!
//! - [`contender`] starts a program, measures it from outside and stops it by its process id;
//! - [`worker`] is the protocol of small contenders that repeat one operation, in Rust and in Go;
//! - [`jobs`] measures such workers side by side, [`worker_bench`] is the main function of their
//!   benchmarks;
//! - [`sim`] runs the simulated cluster in its own process;
//! - [`load`] applies an open-loop load over [`https`], so that a slow server gets no fewer
//!   requests;
//! - [`measure`] repeats in turns and shows how quiet the machine was; [`campaign`] saves the
//!   result of each turn, so that a long run can be resumed;
//! - [`instructions`] counts the instructions of a hot path and compares them with a record;
//! - [`serving`] is shared by the benchmarks of servers of `metrics.k8s.io`;
//! - [`timing`] is a loop for operations that run in the benchmark itself;
//! - [`table`] and [`result`] report to a person and to a file.
//!
//! Only ratios within one run are comparable; absolute figures change with the machine and its
//! other load.

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
pub mod worker_bench;

pub use error::BenchError;
