//! The pair of interfaces between host and node.
//!
//! The host's end carries the cluster's index in its name: the kernel makes no second one, and so
//! two clusters never get the same subnets, whatever caches they are kept in. Both ends vanish with
//! the cluster's network namespace.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::layout::{Addresses, Layout};
use crate::process::Process;

/// One line of `ip -json`.
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

/// Removes the pair at once, rather than when the kernel comes to it. Interfaces of others are left
/// alone.
pub(crate) fn disconnect(layout: &Layout) -> Result<()> {
    let alias = layout.interface_alias();
    let listed = output(Command::new("ip").args(["-json", "link", "show"]))?;
    for link in links(&listed)? {
        if link.ifalias.as_deref() == Some(alias.as_str()) {
            // Gone in the meantime is fine.
            let _ = Command::new("ip")
                .args(["link", "delete", &link.ifname])
                .stderr(Stdio::null())
                .status();
        }
    }
    Ok(())
}

/// False if another cluster has that index.
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
    // Which network's setting this is depends on who writes, not on where `/proc` was mounted.
    let mut forward = Command::new("nsenter");
    forward
        .arg(format!("--net=/proc/{}/ns/net", holder.pid))
        .args(["--", "sh", "-c"]);
    output(forward.arg("echo 1 > /proc/sys/net/ipv4/ip_forward")).map(drop)
}

/// Destinations that the host has routes to already, apart from its default.
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

/// `ip -json` prints nothing at all for an empty list, in some versions.
fn parse<T: for<'de> Deserialize<'de>>(listed: &[u8]) -> Result<Vec<T>> {
    if listed.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_slice(listed).context("reading the output of ip")
}

fn ip(arguments: &[&str]) -> Result<()> {
    output(Command::new("ip").args(arguments)).map(drop)
}

/// What a command prints; its complaint, if it fails.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let shown = xtask::step::command_line(command);
    let done = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {shown}"))?;
    if !done.status.success() {
        bail!("{shown}: {}", String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(done.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_interface_with_our_alias_is_ours() {
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
    fn a_subnet_that_the_host_uses_is_not_taken() {
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
