//! `kubevitals server`: the resource metrics API (`metrics.k8s.io`) behind `kubectl top`, HPA and VPA.
//!
//! ```text
//! watch (nodes, pods) ─┬────────────────► usage store ──publish──► metrics API ──► apiserver kit ──► HTTPS
//!                      └─► scrape loops ─────▲
//! ```

mod bridge;
mod cluster;
mod compat;
mod config;
mod flags;

pub use flags::ServerFlags;
