//! Why a pod took so long to start, or which pods took longest, read once from the API server.
//!
//! ```text
//!  GET pod, its events, its node ──► PodRecord::reconstruct ──► ExplainedPod
//!  LIST pods, page by page ──┬─► the slowest ──► their events ──► ExplainedPod, in order
//!                            ├─► by image, node, workload, pool ──► GroupReport
//!                            └─► of a workload by revision, of a node ──► StartReport, DiffReport
//!  WATCH one pod and its events ──► Tracker, until it is ready or never will be ──► ExplainedPod
//! ```
//!
//! Nothing is installed in the cluster: everything comes from the pods' states and from the events
//! that the API server still holds.

mod api;
mod diff;
pub mod document;
mod events;
mod follow;
mod grouped;
mod lookup;
mod nodes;
mod report;
mod slowest;
mod workload;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kubevitals_cli::RunError;
use kubevitals_model::Clock;
use kubevitals_transitions::PodRecord;
use kubevitals_transitions::stats::groups::GroupBy;

use self::api::ApiReader;
pub use self::diff::{Checks, DiffReport, DiffSide, files as diff_files};
pub use self::grouped::{GroupReport, StartGroup};
pub use self::report::{ReportTarget, StartReport};
pub use self::slowest::Summary;
pub use self::workload::{Revision, WorkloadKind, WorkloadName};

/// Explains pods of one cluster.
pub struct Explainer<'n> {
    api: ApiReader,
    config: kube::Config,
    clock: Clock,
    notices: &'n mut dyn Notices,
}

/// Receives warnings and progress while pods are read.
pub trait Notices {
    fn warn(&mut self, message: &str);
    /// Shows progress; `message` is rendered only if it is shown.
    fn progress(&mut self, message: &dyn Fn() -> String);
    fn clear_progress(&mut self);
}

/// An explained pod.
#[derive(Debug, Clone)]
pub struct ExplainedPod {
    pub record: PodRecord,
    /// The pool of its node.
    pub pool: Option<Arc<str>>,
}

/// The name of one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodName {
    pub namespace: String,
    pub name: String,
}

/// Selects the slowest pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlowestQuery {
    /// Maximum number of pods.
    pub limit: usize,
    /// `None` for all namespaces.
    pub namespace: Option<String>,
    /// A label selector.
    pub selector: Option<String>,
    /// Maximum age of the pods.
    pub since: Option<Duration>,
}

impl<'n> Explainer<'n> {
    /// Nothing is requested yet.
    pub fn new(
        config: kube::Config,
        clock: Clock,
        notices: &'n mut dyn Notices,
    ) -> Result<Self, RunError> {
        Ok(Self {
            api: ApiReader::new(config.clone())?,
            config,
            clock,
            notices,
        })
    }

    /// Explains one pod as it is now.
    pub async fn pod(&mut self, pod: &PodName) -> Result<ExplainedPod, RunError> {
        let now = self.clock.now();
        lookup::explain(&self.api, pod, now, self.notices).await
    }

    /// Waits until a pod, which need not exist yet, is ready or never will be, or until
    /// `interrupt`.
    pub async fn wait<I>(
        &mut self,
        pod: &PodName,
        interrupt: impl Future<Output = I>,
    ) -> Result<ExplainedPod, RunError> {
        follow::until_settled(&self.api, &self.config, &self.clock, pod, interrupt).await
    }

    /// Explains the slowest pods, the slowest first.
    pub async fn slowest(
        &mut self,
        query: &SlowestQuery,
    ) -> Result<(Vec<ExplainedPod>, Summary), RunError> {
        let now = self.clock.now();
        slowest::find(&self.api, query, now, self.notices).await
    }

    /// Explains the slowest groups of pods, the slowest first.
    pub async fn groups(
        &mut self,
        query: &SlowestQuery,
        by: GroupBy,
    ) -> Result<GroupReport, RunError> {
        let now = self.clock.now();
        grouped::find(&self.api, query, by, now, self.notices).await
    }

    /// Explains the pods of a workload's newest revision or of a node together; with `since`, only
    /// those created within this time.
    pub async fn report(
        &mut self,
        target: &ReportTarget,
        since: Option<Duration>,
    ) -> Result<StartReport, RunError> {
        let now = self.clock.now();
        report::read(&self.api, target, since, now, self.notices).await
    }

    /// Compares two revisions of a workload, by number or hash; without names, the newest with the
    /// one before.
    pub async fn diff(
        &mut self,
        workload: &WorkloadName,
        names: Option<[&str; 2]>,
        checks: &Checks,
    ) -> Result<DiffReport, RunError> {
        let now = self.clock.now();
        diff::revisions(&self.api, workload, names, checks, now, self.notices).await
    }
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
