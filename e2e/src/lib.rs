//! The harness of tests against a real cluster.
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
//! let _guard = cluster.shared().await;
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
//! | the cluster: clients, `kubectl`, restarts of components, exclusive use | [`Cluster`] |
//! | a namespace of the test's own, its objects and waits, and the report if the test fails | [`TestNamespace`] |
//! | pods with a known usage of CPU and memory | [`Burner`] |
//! | service accounts and their rights | [`Access`] |
//! | a kubelet over verified TLS, and the usage that it reports | [`Kubelet`], [`ResourceMetrics`] |
//! | the shape of the metrics that a program exposes | [`Exposition`] |
//! | images that are pulled slowly or after refusals, and what the runtime logged of the pulls | [`Registry`], [`runtime_pulls`] |
//! | the watch streams of a namespace, as fixtures of other tests | [`Recorder`] |
//! | a pod from a file of the node | [`StaticPod`] |
//! | `kubevitals node` beside the kubelet | [`VirtualNode`] |
//! | the records of pods that `kubevitals transitions` writes | [`RecordReader`] |
//! | our server in pods, from the shipped manifest | [`InstalledServer`], [`Manifest`] |
//! | our Helm chart, and what remains of it | [`Release`], [`Inventory`] |
//! | a Prometheus that scrapes what the chart's monitors select | [`Prometheus`] |
//! | an API behind an `APIService` | [`AggregatedApi`], [`MetricsApiServer`] |
//!
//! **Failures.** A test that panics or returns early never reaches [`TestNamespace::finish`]; the
//! namespace then prints a report and is deleted. So each test owns a namespace, and `finish` is
//! its last line.
//!
//! **Concurrency.** Tests run two at a time. One that restarts a component takes
//! [`Cluster::exclusive`], all others [`Cluster::shared`].
//!
//! **Leftovers.** All objects of a test have the label [`RUN_LABEL`] with the name of this run.
//! Objects of an earlier run that was killed are deleted before the first test.

mod access;
mod aggregation;
mod background;
mod burner;
mod cluster;
mod error;
mod exposition;
mod installed;
mod inventory;
mod kubelet;
mod manifest;
mod namespace;
mod prometheus;
mod recorder;
mod registry;
mod release;
mod report;
mod run;
mod runtime_log;
mod server;
mod static_pod;
mod transitions;
mod usage;
mod virtual_node;
mod wait;

pub use access::{Access, Rule};
pub use aggregation::{AggregatedApi, ServingPair};
pub use background::Background;
pub use burner::Burner;
pub use cluster::{
    CLUSTER_VARIABLE, Cluster, ExclusiveUse, KubectlOutput, Paused, SharedUse, Stop,
};
pub use error::E2eError;
pub use exposition::{Exposition, Shape};
pub use installed::InstalledServer;
pub use inventory::Inventory;
pub use kubelet::{Kubelet, KubeletResponse};
pub use manifest::Manifest;
pub use namespace::TestNamespace;
pub use prometheus::Prometheus;
pub use recorder::Recorder;
pub use registry::{Delivery, Registry};
pub use release::Release;
pub use run::RUN_LABEL;
pub use runtime_log::{RuntimePull, runtime_pulls};
pub use server::{DirectClient, MetricsApiServer};
pub use static_pod::StaticPod;
pub use transitions::{RecordReader, get as get_page};
pub use usage::{ResourceMetrics, Series};
pub use virtual_node::VirtualNode;
pub use wait::{DEADLINE, has_condition, is_ready, phase_is};
