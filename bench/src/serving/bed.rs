//! What servers are put on: a cluster, its kubelets, and what there is to ask for.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpListener;

use super::program::ServerProgram;
use super::reads;
use super::real::{ControlPlane, RealFlags};
use crate::BenchError;
use crate::contender::Running;
use crate::https::Client;
use crate::sim::{SimProcess, SimSize};

/// As many as the load has under way at once, so that requests wait in one place only.
const CONNECTIONS: usize = 64;

/// The node that loses a scrape.
pub(super) const VICTIM: &str = "node-00000";

/// A cluster, and what is asked of every server on it.
#[derive(Debug)]
pub struct Bed {
    /// The simulated cluster: all of it, or the kubelets of a real API server.
    pub sim: SimProcess,
    /// The real API server, if there is one.
    control_plane: Option<ControlPlane>,
    /// How large it is.
    pub size: SimSize,
    /// Namespace and label selector of each workload.
    pub workloads: Vec<(String, String)>,
    /// A pod of the node that loses a scrape, as namespace and name.
    pub(super) victim_pod: (String, String),
    scratch: PathBuf,
}

impl Bed {
    /// Starts a simulated cluster and looks at it. `more` are further flags of `kubevitals sim`.
    pub async fn start(
        program: &Path,
        size: SimSize,
        more: &[String],
        scratch: &Path,
    ) -> Result<Self, BenchError> {
        let sim = SimProcess::start(program, size, more, scratch).await?;
        let (_, deployments) = sim.api.json("/apis/apps/v1/deployments").await?;
        let workloads = reads::workloads(&deployments);
        let on_victim = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{VICTIM}");
        let (_, pods) = sim.api.json(&on_victim).await?;
        let text = |pointer: &str| {
            pods.pointer(pointer)
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let victim_pod = text("/items/0/metadata/namespace").zip(text("/items/0/metadata/name"));
        let Some(victim_pod) = victim_pod.filter(|_| !workloads.is_empty()) else {
            let small = "the cluster has no workloads: give it more nodes or pods".to_owned();
            return Err(BenchError::NoContender(small));
        };
        Ok(Self {
            sim,
            control_plane: None,
            size,
            workloads,
            victim_pod,
            scratch: scratch.to_owned(),
        })
    }

    /// The same with a real API server in front of the simulated kubelets, which has all their
    /// nodes and pods.
    pub async fn with_control_plane(mut self, flags: &RealFlags) -> Result<Self, BenchError> {
        let real = ControlPlane::start(flags, &self.sim, &self.scratch).await?;
        self.control_plane = Some(real);
        Ok(self)
    }

    /// Starts a server on the cluster, with these flags beside the usual ones, and says where it
    /// listens.
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

    /// An administrator's client of a server on loopback.
    pub fn client(&self, address: SocketAddr) -> Result<Client, BenchError> {
        let tls = self.sim.identity.self_signed_tls()?;
        Ok(Client::new(address, tls, CONNECTIONS))
    }

    /// A client that goes through the cluster's aggregation layer, which is told of the server
    /// first.
    pub async fn aggregated_client(&self, address: SocketAddr) -> Result<Client, BenchError> {
        self.sim.aggregate(address).await?;
        let identity = &self.sim.identity;
        let tls = identity.api_tls()?;
        Ok(Client::new(identity.server, tls, CONNECTIONS))
    }

    /// Processor time that the cluster has used.
    pub fn cpu(&self) -> Result<Duration, BenchError> {
        match &self.control_plane {
            Some(real) => Ok(self.sim.cpu()? + real.cpu()?),
            None => self.sim.cpu(),
        }
    }

    /// Ends the cluster.
    pub async fn stop(self) {
        if let Some(real) = self.control_plane {
            real.stop().await;
        }
        self.sim.stop().await;
    }
}

/// A free port of loopback. Somebody could take it before the server does; it would then end, and
/// say so.
pub async fn free_address() -> Result<SocketAddr, BenchError> {
    let listener = TcpListener::bind("127.0.0.1:0").await;
    let address = listener.and_then(|listener| listener.local_addr());
    address.map_err(BenchError::file("listen on", "127.0.0.1"))
}
