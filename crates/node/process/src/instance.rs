//! One run of a container, from its start to its end.

use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use kubevitals_virtual_node::runtime::PodEvent;
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::context::PodContext;
use crate::error::ProcessError;
use crate::launch;
use crate::shim::SHIM;
use crate::shim::record::{LAUNCH_FILE, Launch, ProcessRecord, read_record};
use crate::state::{Ended, Role, Running};

mod driver;

use driver::Driver;

/// A run of a container, as exec, attach and statistics see it.
#[derive(Debug)]
pub(crate) struct Instance {
    pub id: String,
    pub container: String,
    pub folder: PathBuf,
    pub launch: Launch,
    pub shim: Vec<String>,
    process: OnceLock<ProcessRecord>,
    /// Set once the run has ended and its log is complete.
    ended: watch::Sender<bool>,
}

/// What to run.
pub(crate) struct Start {
    /// The place of the container in the state of the pod.
    pub index: usize,
    pub role: Role,
    pub pod: Arc<Pod>,
    pub container: Arc<Container>,
    pub id: String,
    pub attempt: u32,
    /// Whether it is a run of an earlier process of the node, which goes on.
    pub is_adopted: bool,
    /// Its health, if it was running.
    pub running: Option<Running>,
    pub stop: watch::Receiver<Option<Stop>>,
}

/// A request to end a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stop {
    pub deadline: Instant,
    /// For the event `Killing`.
    pub message: String,
}

/// What a run reports to the worker of its pod.
#[derive(Debug)]
pub(crate) enum Report {
    Event(PodEvent),
    /// There is an instance.
    Created(Arc<Instance>),
    /// It runs, and what is known of its health.
    Health(usize, Running),
    Ended(usize, Ended),
    /// There is no instance; it is tried again later.
    NotCreated {
        index: usize,
        reason: &'static str,
        message: String,
    },
    /// The volumes are set up, and when their tokens must be renewed.
    Volumes(Result<Option<Duration>, ProcessError>),
    /// Nothing is left of the processes of the pod.
    Cleaned,
}

impl Instance {
    /// The pid of the main process, once it runs.
    pub(crate) fn pid(&self) -> Option<i32> {
        self.process.get().map(|one| one.main.pid)
    }

    /// When the program started.
    pub(crate) fn started_ms(&self) -> Option<i64> {
        self.process.get().map(|one| one.started_ms)
    }

    /// Tells when the run has ended.
    pub(crate) fn ended(&self) -> watch::Receiver<bool> {
        self.ended.subscribe()
    }
}

/// Runs a container until it ends.
pub(crate) async fn run(context: Arc<PodContext>, start: Start, reports: mpsc::Sender<Report>) {
    let index = start.index;
    let mut stopped = start.stop.clone();
    let result = if start.is_adopted {
        adopt(&context, &start)
    } else {
        tokio::select! {
            biased;
            result = create(&context, &start, &reports) => result,
            // What the container needs may never come. Nothing runs before `create` returns.
            _ = stopped.wait_for(Option::is_some) => {
                Err(ProcessError::Config("the pod was terminated".to_owned()))
            }
        }
    };
    let (instance, child) = match result {
        Ok(created) => created,
        Err(error) => {
            let reason = match &error {
                ProcessError::Config(_) | ProcessError::Inputs(_) => "CreateContainerConfigError",
                _ => "CreateContainerError",
            };
            let message = error.to_string();
            let text = format!("Error: {message}");
            let event = context.event(start.role, &start.container, true, "Failed", text);
            let _ = reports.send(Report::Event(event)).await;
            let report = Report::NotCreated {
                index,
                reason,
                message,
            };
            let _ = reports.send(report).await;
            return;
        }
    };
    let instance = Arc::new(instance);
    let _ = reports.send(Report::Created(Arc::clone(&instance))).await;
    let (probe_reports, probes_of) = mpsc::channel(8);
    let (hook_results, hooks_of) = mpsc::channel(2);
    let mut driver = Driver {
        health: start.running.clone(),
        context,
        start,
        reports,
        instance,
        tasks: JoinSet::new(),
        checks: Vec::new(),
        probe_reports,
        hook_results,
        stopping: None,
    };
    let ended = driver.drive(child, probes_of, hooks_of).await;
    driver.tasks.shutdown().await;
    driver.clean(ended).await;
}

/// Creates an instance and starts its shim.
async fn create(
    context: &PodContext,
    start: &Start,
    reports: &mpsc::Sender<Report>,
) -> Result<(Instance, Option<Child>), ProcessError> {
    let container = &start.container;
    let launch = launch::launch(context, &start.pod, container, &start.id, start.attempt).await?;
    let image = container.image.as_deref().unwrap_or_default();
    let pulled = format!("Container image {image:?} already present on machine");
    let event = context.event(start.role, container, false, "Pulled", pulled);
    let _ = reports.send(Report::Event(event)).await;
    let folder = launch::create(context, &start.pod, container, &launch)?;
    let failed = |error: io::Error| ProcessError::Shim {
        container: container.name.clone(),
        message: error.to_string(),
    };
    let shim = context.config.shim.clone();
    let (program, arguments) = shim
        .split_first()
        .ok_or_else(|| failed(io::Error::other("its program is not configured")))?;
    let errors = std::fs::File::create(folder.join("shim.log")).map_err(failed)?;
    let event = context.event(
        start.role,
        container,
        false,
        "Created",
        "Container created".to_owned(),
    );
    let _ = reports.send(Report::Event(event)).await;
    // The last step, without a point at which this could be cancelled after it.
    let child = Command::new(program)
        .args(arguments)
        .arg(SHIM)
        .arg(&folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors)
        .spawn()
        .map_err(failed)?;
    context.metrics.started();
    Ok((
        Instance::new(start, folder, launch, shim.clone()),
        Some(child),
    ))
}

/// Finds an instance of an earlier process of the node.
fn adopt(context: &PodContext, start: &Start) -> Result<(Instance, Option<Child>), ProcessError> {
    let folder = context.instance_folder(&start.id);
    let path = folder.join(LAUNCH_FILE);
    let launch = read_record(&path).map_err(ProcessError::file("read", &path))?;
    let mut launch: Launch = launch.unwrap_or_default();
    if let Some(cgroups) = &context.cgroups {
        // What is left of it is found there, whatever the record says.
        let uid = context.id.uid.to_string();
        launch.cgroup = Some(cgroups.container(&uid, &start.id));
    }
    let instance = Instance::new(start, folder, launch, context.config.shim.clone());
    Ok((instance, None))
}

impl Instance {
    fn new(start: &Start, folder: PathBuf, launch: Launch, shim: Vec<String>) -> Self {
        Self {
            id: start.id.clone(),
            container: start.container.name.clone(),
            folder,
            launch,
            shim,
            process: OnceLock::new(),
            ended: watch::Sender::new(false),
        }
    }
}
