//! The pair of interfaces between host and node.
//!
//! The host's end has the cluster's index in its name, which the kernel keeps unique, so two
//! clusters never get the same subnets, even from different caches. Both ends are removed with the
//! cluster's network namespace.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::layout::{Addresses, Layout};
use crate::process::Process;

/// An interface as `ip -json` prints it.
#[derive(Debug, Deserialize)]
struct Link {
    ifname: String,
    ifalias: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Route {
    dst: String,
}

/// The node's end.
const INSIDE: &str = "eth0";

/// Connects the holder's network namespace with the host's.
pub(crate) fn connect(layout: &Layout, holder: Process) -> Result<Addresses> {
    let first = layout.preferred_index();
    let routed = host_routes()?;
    for offset in 0..=u8::MAX {
        let addresses = Addresses::new(first.wrapping_add(offset));
        if overlaps(addresses, &routed) || !add_pair(addresses, holder)? {
            continue;
        }
        let interface = addresses.interface();
        ip(&[
            "link",
            "set",
            &interface,
            "alias",
            &layout.interface_alias(),
        ])?;
        ip(&[
            "address",
            "add",
            &addresses.link().with_prefix(addresses.host()),
            "dev",
            &interface,
        ])?;
        ip(&["link", "set", &interface, "up"])?;
        configure_node(addresses, holder)?;
        for subnet in [addresses.pods(), addresses.services()] {
            let (subnet, node) = (subnet.to_string(), addresses.node().to_string());
            ip(&["route", "add", &subnet, "via", &node, "dev", &interface])?;
        }
        return Ok(addresses);
    }
    bail!("all 256 subnets for clusters are taken: `cargo xtask cluster down --all`")
}

/// Removes the pair now, not when the kernel gets to it. Other interfaces are not touched.
pub(crate) fn disconnect(layout: &Layout) -> Result<()> {
    let alias = layout.interface_alias();
    let listed = output(Command::new("ip").args(["-json", "link", "show"]))?;
    for link in links(&listed)? {
        if link.ifalias.as_deref() == Some(alias.as_str()) {
            // It may be gone by now.
            let _ = Command::new("ip")
                .args(["link", "delete", &link.ifname])
                .stderr(Stdio::null())
                .status();
        }
    }
    Ok(())
}

/// Adds the pair; returns false if another cluster has that index.
fn add_pair(addresses: Addresses, holder: Process) -> Result<bool> {
    let interface = addresses.interface();
    let pid = holder.pid.to_string();
    let added = Command::new("ip")
        .args([
            "link", "add", &interface, "type", "veth", "peer", "name", INSIDE, "netns", &pid,
        ])
        .output()
        .context("cannot start ip (from iproute2)")?;
    if added.status.success() {
        return Ok(true);
    }
    let error = String::from_utf8_lossy(&added.stderr);
    if error.contains("File exists") {
        return Ok(false);
    }
    bail!("ip link add {interface}: {}", error.trim())
}

fn configure_node(addresses: Addresses, holder: Process) -> Result<()> {
    let address = addresses.link().with_prefix(addresses.node());
    let inside = |arguments: &[&str]| {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/proc/{}/ns/net", holder.pid))
            .args(["--", "ip"])
            .args(arguments);
        output(&mut command).map(drop)
    };
    inside(&["link", "set", "lo", "up"])?;
    inside(&["address", "add", &address, "dev", INSIDE])?;
    inside(&["link", "set", INSIDE, "up"])?;
    inside(&[
        "route",
        "add",
        "default",
        "via",
        &addresses.host().to_string(),
    ])?;
    // The setting is that of the writer's namespace, not of the namespace that mounted `/proc`.
    let mut forward = Command::new("nsenter");
    forward
        .arg(format!("--net=/proc/{}/ns/net", holder.pid))
        .args(["--", "sh", "-c"]);
    output(forward.arg("echo 1 > /proc/sys/net/ipv4/ip_forward")).map(drop)
}

/// Returns the destinations of the host's routes.
fn host_routes() -> Result<Vec<String>> {
    let listed = output(Command::new("ip").args(["-json", "-4", "route", "show", "table", "all"]))?;
    let routes: Vec<Route> = parse(&listed)?;
    Ok(routes.into_iter().map(|route| route.dst).collect())
}

fn overlaps(addresses: Addresses, routed: &[String]) -> bool {
    [addresses.link(), addresses.pods(), addresses.services()]
        .iter()
        .any(|subnet| {
            routed
                .iter()
                .any(|destination| subnet.overlaps(destination))
        })
}

fn links(listed: &[u8]) -> Result<Vec<Link>> {
    parse(listed)
}

/// Parses a list; some versions of `ip -json` print nothing for an empty one.
fn parse<T: for<'de> Deserialize<'de>>(listed: &[u8]) -> Result<Vec<T>> {
    if listed.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_slice(listed).context("reading the output of ip")
}

fn ip(arguments: &[&str]) -> Result<()> {
    output(Command::new("ip").args(arguments)).map(drop)
}

/// Returns what a command prints; fails with its standard error.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let line = xtask::step::command_line(command);
    let done = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {line}"))?;
    if !done.status.success() {
        bail!("{line}: {}", String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(done.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_identified_by_its_alias() {
        let listed = br#"[{"ifname":"lo"},{"ifname":"kubevitals7","ifalias":"kubevitals cluster /c/clusters/dev"}]"#;
        let links = links(listed).unwrap();
        assert_eq!(links[0].ifalias, None);
        assert_eq!(
            links[1].ifalias.as_deref(),
            Some("kubevitals cluster /c/clusters/dev")
        );
        assert!(parse::<Link>(b"\n").unwrap().is_empty());
    }

    #[test]
    fn a_subnet_with_a_route_on_the_host_is_skipped() {
        let routed = |list: &[&str]| list.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        let addresses = Addresses::new(7);
        assert!(!overlaps(
            addresses,
            &routed(&["default", "192.168.0.0/16", "10.213.8.0/30", "10.0.0.0/8"])
        ));
        for taken in ["10.213.7.0/30", "10.214.7.12", "10.215.0.0/16"] {
            assert!(overlaps(addresses, &routed(&[taken])), "{taken}");
        }
    }
}
