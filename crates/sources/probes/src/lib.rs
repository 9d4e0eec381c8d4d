//! Probes of targets: configuration, schedule, and what each run measured.
//!
//! ```text
//!  file ──► Config ──► Module, compiled ──┐
//!           targets, interval ──► Schedule ├──► run: resolve, connect, tls, … ──► Outcome ──► OutcomeSink
//!                                          └── one task for each probe and target; a hung one blocks nothing
//! ```

mod module;
mod outcome;

pub use module::{Module, Prober};
pub use outcome::{Facts, Failure, Outcome, Phase, PhaseTime, Reason};
