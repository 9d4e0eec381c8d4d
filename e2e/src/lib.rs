//! What tests against a real cluster are written with.
//!
//! `cargo xtask e2e` brings up one cluster (`docs/real-cluster.md`) and runs the test binary of
//! this crate inside its network namespace, so that tests dial the API server, the kubelet and pods
//! directly. A test is a plain `#[tokio::test]`:
//!
//! ```no_run
//! use kubevitals_e2e::{Burner, Cluster, E2eError, is_ready};
//! use k8s_openapi::api::core::v1::Pod;
//!
//! # async fn example() -> Result<(), E2eError> {
//! let cluster = Cluster::from_env().await?;
//! let _turn = cluster.shared().await;
//! let namespace = cluster.namespace("usage").await?;
//! namespace.apply(&Burner::new("burner").cpu_millicores(200).pod()).await?;
//! namespace.wait_for::<Pod>("burner", is_ready).await?;
//! // …
//! namespace.finish().await
//! # }
//! ```
//!
//! | what | where |
//! |---|---|
//! | the cluster: clients, `kubectl`, restarts of components, turns | [`Cluster`] |
//! | a namespace of the test's own, its objects and waits, and the report if the test fails | [`TestNamespace`] |
//! | pods that use a stated CPU and hold a stated memory | [`Burner`] |
//! | who may do what | [`Access`] |
//! | a kubelet over verified TLS, and what it says of usage | [`Kubelet`], [`ResourceMetrics`] |
//! | the metrics that a program exposes of itself, as far as their shape goes | [`Exposition`] |
//! | the lives of pods, as our role writes them | [`LifeLines`] |
//! | an API behind an `APIService` | [`AggregatedApi`], [`MetricsServer`]; ours: [`MetricsApiServer`] |
//!
//! **Failing.** A test that panics or returns early never reaches [`TestNamespace::finish`]; the
//! namespace then prints what a person would look at before it goes. So each test owns a namespace,
//! and `finish` is its last line.
//!
//! **Turns.** Tests run two at a time. One that restarts a component takes [`Cluster::exclusive`],
//! all others [`Cluster::shared`].
//!
//! **Leftovers.** All that a test makes carries the label [`RUN_LABEL`] with a value of this run.
//! What an earlier run that was killed left behind is deleted before the first test begins.

mod access;
mod aggregation;
mod background;
mod burner;
mod cluster;
mod error;
mod exposition;
mod kubelet;
mod metrics_server;
mod namespace;
mod report;
mod run;
mod server;
mod transitions;
mod usage;
mod wait;

pub use access::{Access, Rule};
pub use aggregation::AggregatedApi;
pub use background::Background;
pub use burner::Burner;
pub use cluster::{CLUSTER_VARIABLE, Cluster, Exclusive, KubectlOutput, Shared, Stop};
pub use error::E2eError;
pub use exposition::{Exposition, Shape};
pub use kubelet::{Answer, Kubelet};
pub use metrics_server::MetricsServer;
pub use namespace::TestNamespace;
pub use run::RUN_LABEL;
pub use server::MetricsApiServer;
pub use transitions::LifeLines;
pub use usage::{ResourceMetrics, Series};
pub use wait::{DEADLINE, has_condition, is_ready, phase_is};
