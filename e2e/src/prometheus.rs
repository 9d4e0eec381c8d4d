//! A Prometheus that scrapes our program as the chart's monitors say.
#![expect(
    clippy::indexing_slicing,
    reason = "a key that a JSON object does not have is null"
)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep};

use crate::aggregation::free_port;
use crate::background::Background;
use crate::cluster::Cluster;
use crate::error::E2eError;
use crate::manifest::Manifest;
use crate::namespace::TestNamespace;
use crate::transitions::get;
use crate::wait::DEADLINE;

/// Interval of scrapes and of evaluations of rules, in place of that of the monitors.
const INTERVAL: &str = "1s";

/// Interval at which a query is repeated.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// A Prometheus in the cluster's network.
#[derive(Debug)]
pub struct Prometheus {
    process: Background,
    address: SocketAddr,
}

impl Prometheus {
    /// Starts it with the scrape configuration that the Prometheus operator makes of the
    /// `ServiceMonitor`s and `PodMonitor`s among these objects, with a scrape of the kubelet, and
    /// with these files of rules.
    pub async fn start(
        namespace: &TestNamespace,
        monitors: &Manifest,
        rules: &[PathBuf],
    ) -> Result<Self, E2eError> {
        let cluster = namespace.cluster();
        let node = cluster.node_address();
        let address = SocketAddr::new(node, free_port(node)?);
        let kubeconfig = cluster.kubeconfig().display().to_string();
        let mut scraped = scrape_configs(monitors, &kubeconfig);
        scraped.push(kubelet_config(cluster));
        let configuration = json!({
            "global": {"scrape_interval": INTERVAL, "evaluation_interval": INTERVAL},
            "rule_files": rules,
            "scrape_configs": scraped,
        });
        let file = namespace.write("prometheus.yml", &configuration.to_string())?;
        let storage = namespace.folder().join(format!("tsdb-{}", address.port()));
        let arguments = [
            format!("--config.file={}", file.display()),
            format!("--web.listen-address={address}"),
            // One for each: a later Prometheus must not find the series of an earlier one.
            format!("--storage.tsdb.path={}", storage.display()),
        ];
        let output = namespace.folder().join("prometheus.log");
        let program = cluster.program("prometheus")?;
        let mut process = Background::start(&program, &arguments, &output)?;
        let began = Instant::now();
        while !matches!(get(address, "/-/ready").await, Ok((200, _))) {
            process.must_run()?;
            if began.elapsed() > DEADLINE {
                return Err(E2eError::Deadline {
                    what: "Prometheus".to_owned(),
                    waited: DEADLINE,
                    last_seen: process.output(),
                });
            }
            sleep(POLL_INTERVAL).await;
        }
        Ok(Self { process, address })
    }

    /// Returns the series of an instant query, each with `metric` and `value`.
    pub async fn query(&self, query: &str) -> Result<Vec<Value>, E2eError> {
        let path = format!("/api/v1/query?query={}", percent_encoded(query));
        let failed = |reason: String| E2eError::Get {
            url: path.clone(),
            reason,
        };
        let (status, body) = get(self.address, &path)
            .await
            .map_err(|error| failed(error.to_string()))?;
        let answer: Value =
            serde_json::from_str(&body).map_err(|error| failed(format!("{status}: {error}")))?;
        match answer.pointer("/data/result").and_then(Value::as_array) {
            Some(series) => Ok(series.clone()),
            None => Err(failed(format!("{status}: {body}"))),
        }
    }

    /// Repeats an instant query until its series are as wanted.
    pub async fn until(
        &mut self,
        query: &str,
        is_wanted: impl Fn(&[Value]) -> bool,
    ) -> Result<Vec<Value>, E2eError> {
        let began = Instant::now();
        loop {
            self.process.must_run()?;
            let series = self.query(query).await?;
            if is_wanted(&series) {
                return Ok(series);
            }
            if began.elapsed() > DEADLINE {
                return Err(E2eError::Deadline {
                    what: query.to_owned(),
                    waited: DEADLINE,
                    last_seen: format!("{series:?}"),
                });
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}

/// Returns a scrape configuration for each endpoint of each monitor.
fn scrape_configs(monitors: &Manifest, kubeconfig: &str) -> Vec<Value> {
    let mut configs = Vec::new();
    for monitor in monitors.objects() {
        // The names of the labels of discovery, which differ by role.
        let (endpoints, role, labels_of, port) = match monitor["kind"].as_str() {
            Some("ServiceMonitor") => (
                "endpoints",
                "endpointslice",
                "service",
                "endpointslice_port_name",
            ),
            Some("PodMonitor") => (
                "podMetricsEndpoints",
                "pod",
                "pod",
                "pod_container_port_name",
            ),
            _ => continue,
        };
        let spec = &monitor["spec"];
        let label = |name: &str| format!("__meta_kubernetes_{labels_of}_label_{}", plain(name));
        for endpoint in spec[endpoints].as_array().into_iter().flatten() {
            let keep = |source: String, regex: &Value| json!({"action": "keep", "source_labels": [source], "regex": regex});
            let copy = |source: String, target: &str| json!({"source_labels": [source], "target_label": target});
            let mut relabelings = Vec::new();
            let selected = spec.pointer("/selector/matchLabels");
            for (name, value) in selected.and_then(Value::as_object).into_iter().flatten() {
                relabelings.push(keep(label(name), value));
            }
            relabelings.push(keep(format!("__meta_kubernetes_{port}"), &endpoint["port"]));
            for (source, target) in [
                ("namespace", "namespace"),
                ("service_name", "service"),
                ("pod_name", "pod"),
                ("pod_container_name", "container"),
            ] {
                relabelings.push(copy(format!("__meta_kubernetes_{source}"), target));
            }
            if let Some(job) = spec["jobLabel"].as_str() {
                relabelings.push(copy(label(job), "job"));
            }
            let mut config = json!({
                "job_name": format!("{role}-{}", configs.len()),
                "honor_labels": endpoint["honorLabels"] == true,
                "metrics_path": endpoint["path"],
                "scheme": endpoint["scheme"].as_str().unwrap_or("http"),
                "kubernetes_sd_configs": [{
                    "role": role,
                    "kubeconfig_file": kubeconfig,
                    "namespaces": {"names": spec["namespaceSelector"]["matchNames"]},
                }],
                "relabel_configs": relabelings,
            });
            if let Some(insecure) = endpoint.pointer("/tlsConfig/insecureSkipVerify") {
                let mut tls = Map::new();
                tls.insert("insecure_skip_verify".to_owned(), insecure.clone());
                config["tls_config"] = Value::Object(tls);
            }
            configs.push(config);
        }
    }
    configs
}

/// The scrape configuration of the kubelet, whose usage a dashboard shows.
fn kubelet_config(cluster: &Cluster) -> Value {
    let authority = cluster.authority();
    json!({
        "job_name": "kubelet-resource",
        "scheme": "https",
        "metrics_path": "/metrics/resource",
        "track_timestamps_staleness": true,
        "tls_config": {
            "ca_file": authority,
            "cert_file": authority.with_file_name("admin.crt"),
            "key_file": authority.with_file_name("admin.key"),
        },
        "static_configs": [{"targets": [cluster.kubelet_address().to_string()]}],
    })
}

/// Returns a label as service discovery writes it.
fn plain(label: &str) -> String {
    label.replace(|char: char| !char.is_ascii_alphanumeric(), "_")
}

fn percent_encoded(text: &str) -> String {
    let encode = |byte: u8| {
        if byte.is_ascii_alphanumeric() {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    text.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_monitor_becomes_a_scrape_configuration() {
        let monitors = Manifest::parse(
            "kind: PodMonitor\nmetadata: {name: m}\nspec:\n  jobLabel: a.b/c\n  \
             namespaceSelector: {matchNames: [ns]}\n  selector: {matchLabels: {a.b/c: x}}\n  \
             podMetricsEndpoints: [{port: admin, path: /metrics, honorLabels: true}]\n",
        );
        let configs = scrape_configs(&monitors.unwrap(), "k");
        assert_eq!(configs.len(), 1);
        let config = &configs[0];
        assert_eq!(config["honor_labels"], true);
        assert_eq!(config["scheme"], "http");
        assert_eq!(
            config["kubernetes_sd_configs"][0]["namespaces"]["names"][0],
            "ns"
        );
        assert_eq!(
            config["relabel_configs"][0],
            json!({"action": "keep", "source_labels": ["__meta_kubernetes_pod_label_a_b_c"], "regex": "x"})
        );
        assert_eq!(
            config["relabel_configs"][1]["source_labels"][0],
            "__meta_kubernetes_pod_container_port_name"
        );
    }

    #[test]
    fn queries_are_encoded() {
        assert_eq!(percent_encoded("up{a=\"b\"}"), "up%7Ba%3D%22b%22%7D");
    }
}
