//! Leader election over Leases, by the rules of client-go's `leaderelection` package.
//!
//! ```no_run
//! use kube_client_metrics::Hooks;
//! use kube_lease::{Election, Elector, LeaseError};
//!
//! # async fn work() {}
//! # async fn run(client: kube::Client, hooks: &Hooks) -> Result<(), LeaseError> {
//! let election = Election::new("kube-system", "my-controller", "pod-name_uid");
//! let mut elector = Elector::new(client, election, hooks)?;
//! elector.acquire().await;
//! tokio::select! {
//!     () = elector.hold() => {} // The lease is lost: stop at once, another process may lead.
//!     () = work() => elector.release().await,
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Limits
//!
//! - There is no fencing, as in client-go: a process that is suspended for longer than its lease
//!   may act for a moment before it notices.
//! - Clocks may differ by any amount, but must run about equally fast, within the ratio of lease
//!   duration to renew deadline.

#![warn(missing_docs)]

mod election;
mod elector;

pub use election::{Election, LeaseError};
pub use elector::Elector;

/// The README's program is compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
