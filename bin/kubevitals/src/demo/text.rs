//! The commands that the demo prints.

use std::io::{self, Write};
use std::net::SocketAddr;

use kubevitals_sim::cluster::SimCluster;
use kubevitals_sim::objects::Resource;

use super::folder::DemoFolder;

pub(super) const KUBECONFIG: &str = "kubeconfig";
pub(super) const CA: &str = "ca.crt";
pub(super) const TOKEN: &str = "token";

/// Writes the commands to try. Each of them is run by a test.
pub(super) fn write(
    out: &mut (dyn Write + Send),
    cluster: &SimCluster,
    folder: &DemoFolder,
    admin: SocketAddr,
) -> io::Result<()> {
    let api = cluster.api();
    let path = folder.path().display();
    writeln!(
        out,
        "a simulated cluster of {} nodes and {} pods is up, with server and transitions on it; \
         try:\n",
        api.count(Resource::Nodes),
        api.count(Resource::Pods)
    )?;
    writeln!(out, "  export KUBECONFIG={path}/{KUBECONFIG}")?;
    writeln!(out, "  kubectl top nodes")?;
    writeln!(out, "  kubectl top pods -A")?;
    writeln!(
        out,
        "  kubectl get --raw /apis/metrics.k8s.io/v1/nodes\n\nwithout kubectl:\n"
    )?;
    writeln!(out, "  kubevitals explain --slowest 5")?;
    writeln!(
        out,
        "  curl --cacert {path}/{CA} -H \"Authorization: Bearer $(cat {path}/{TOKEN})\" \
         {}/apis/metrics.k8s.io/v1/nodes",
        api.url()
    )?;
    writeln!(out, "  curl 'http://{admin}/readyz?verbose'")?;
    writeln!(out, "  curl http://{admin}/metrics\n")?;
    writeln!(out, "stop with Ctrl-C")?;
    out.flush()
}
