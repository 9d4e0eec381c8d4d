//! Runs jobs on the network.

use std::sync::Arc;

use kubevitals_model::Clock;
use parking_lot::RwLock;
use tokio::time::Instant;

use crate::context::{Allow, ProbeContext, Resolve};
use crate::probe::{Executor, Job, Run};

/// Runs jobs by their probers.
#[derive(Debug)]
pub struct ProbeExecutor {
    clock: Clock,
    resolver: Arc<dyn Resolve>,
    allow: RwLock<Arc<Allow>>,
}

impl ProbeExecutor {
    pub fn new(clock: Clock, resolver: Arc<dyn Resolve>, allow: Allow) -> Self {
        Self {
            clock,
            resolver,
            allow: RwLock::new(Arc::new(allow)),
        }
    }

    /// Changes what probes may do, from their next runs on.
    pub fn set_allow(&self, allow: Allow) {
        *self.allow.write() = Arc::new(allow);
    }

    /// The context of a run that must end within a time.
    pub fn context(&self, timeout: std::time::Duration) -> ProbeContext {
        let now = Instant::now();
        ProbeContext {
            clock: self.clock.clone(),
            deadline: now.checked_add(timeout).unwrap_or(now),
            resolver: Arc::clone(&self.resolver),
            allow: Arc::clone(&self.allow.read()),
        }
    }
}

impl Executor for ProbeExecutor {
    fn execute<'a>(&'a self, job: &'a Job) -> Run<'a> {
        Box::pin(async move {
            let context = self.context(job.probe.timeout);
            job.module.prober.run(&job.target, &context).await
        })
    }
}
