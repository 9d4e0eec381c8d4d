//! A cluster, its kubelets and its workloads: the environment of a measured server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpListener;

use super::control_plane::{ControlPlane, ControlPlaneFlags};
use super::program::ServerProgram;
use super::reads;
use crate::BenchError;
use crate::contender::Running;
use crate::https::Client;
use crate::sim::{SimProcess, SimSize};

/// As many as the load has in flight at most, so that requests queue in one place only.
const CONNECTIONS: usize = 64;

/// The node whose scrape fails.
pub(super) const FAULTY_NODE: &str = "node-00000";

/// A cluster on which servers run.
#[derive(Debug)]
pub struct Testbed {
    /// The simulated cluster: all of it, or the kubelets of a real API server.
    pub sim: SimProcess,
    /// The real API server, if there is one.
    control_plane: Option<ControlPlane>,
    pub size: SimSize,
    /// Namespace and label selector of each workload.
    pub workloads: Vec<(String, String)>,
    /// A pod of the node whose scrape fails, as namespace and name.
    pub(super) faulty_pod: (String, String),
    scratch: PathBuf,
}

impl Testbed {
    /// Starts a simulated cluster. `more` are further flags of `kubevitals sim`.
    pub async fn start(
        program: &Path,
        size: SimSize,
        more: &[String],
        scratch: &Path,
    ) -> Result<Self, BenchError> {
        let sim = SimProcess::start(program, size, more, scratch).await?;
        let (_, deployments) = sim.api.json("/apis/apps/v1/deployments").await?;
        let workloads = reads::workloads(&deployments);
        let on_faulty_node = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{FAULTY_NODE}");
        let (_, pods) = sim.api.json(&on_faulty_node).await?;
        let text = |pointer: &str| {
            pods.pointer(pointer)
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let faulty_pod = text("/items/0/metadata/namespace").zip(text("/items/0/metadata/name"));
        let Some(faulty_pod) = faulty_pod.filter(|_| !workloads.is_empty()) else {
            let small = "the cluster has no workloads: increase nodes or pods".to_owned();
            return Err(BenchError::NoContender(small));
        };
        Ok(Self {
            sim,
            control_plane: None,
            size,
            workloads,
            faulty_pod,
            scratch: scratch.to_owned(),
        })
    }

    /// Adds a real API server in front of the simulated kubelets, with all their nodes and pods.
    pub async fn with_control_plane(
        mut self,
        flags: &ControlPlaneFlags,
    ) -> Result<Self, BenchError> {
        let real = ControlPlane::start(flags, &self.sim, &self.scratch).await?;
        self.control_plane = Some(real);
        Ok(self)
    }

    /// Starts a server on the cluster with further flags, and returns its address.
    pub async fn serve(
        &self,
        server: &ServerProgram,
        resolution: Duration,
        more: &[String],
    ) -> Result<(Running, SocketAddr), BenchError> {
        let address = free_address().await?;
        let kubeconfig = match &self.control_plane {
            Some(real) => real.kubeconfig(),
            None => self.sim.kubeconfig(),
        };
        let mut contender = server.contender(address, kubeconfig, resolution, &self.scratch);
        contender.arguments.extend_from_slice(more);
        Ok((contender.start()?, address))
    }

    /// Returns an administrator's client of a server on loopback.
    pub fn client(&self, address: SocketAddr) -> Result<Client, BenchError> {
        let tls = self.sim.identity.self_signed_tls()?;
        Ok(Client::new(address, tls, CONNECTIONS))
    }

    /// Registers the server with the cluster's aggregation layer, and returns a client that goes
    /// through it.
    pub async fn aggregated_client(&self, address: SocketAddr) -> Result<Client, BenchError> {
        self.sim.register_api_service(address).await?;
        let identity = &self.sim.identity;
        let tls = identity.api_tls()?;
        Ok(Client::new(identity.server, tls, CONNECTIONS))
    }

    /// Returns the processor time that the cluster has used.
    pub fn cpu(&self) -> Result<Duration, BenchError> {
        match &self.control_plane {
            Some(real) => Ok(self.sim.cpu()? + real.cpu()?),
            None => self.sim.cpu(),
        }
    }

    /// Stops the cluster.
    pub async fn stop(self) {
        if let Some(real) = self.control_plane {
            real.stop().await;
        }
        self.sim.stop().await;
    }
}

/// Returns a free port of loopback. If another process takes it before the server does, the server
/// exits with an error.
pub async fn free_address() -> Result<SocketAddr, BenchError> {
    let listener = TcpListener::bind("127.0.0.1:0").await;
    let address = listener.and_then(|listener| listener.local_addr());
    address.map_err(BenchError::file("listen on", "127.0.0.1"))
}
