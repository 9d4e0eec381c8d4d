//! Starts of pods as traces, received by a real OpenTelemetry Collector.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kubevitals_e2e::{Background, Cluster, RecordReader, TestNamespace};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

use crate::in_time;
use crate::transitions::{container, spec};

const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// A Collector that writes what it receives to a file, a line of JSON for each request.
pub(crate) struct Collector {
    program: Background,
    http: SocketAddr,
    grpc: SocketAddr,
    file: PathBuf,
}

impl Collector {
    async fn start(namespace: &TestNamespace) -> anyhow::Result<Self> {
        Self::start_for(namespace, "traces").await
    }

    /// For traces, or for metrics.
    pub(crate) async fn start_for(namespace: &TestNamespace, signal: &str) -> anyhow::Result<Self> {
        let (http, grpc) = (free_address().await?, free_address().await?);
        let folder = namespace.folder();
        let file = folder.join("traces.jsonl");
        let config = json!({
            "receivers": {"otlp": {"protocols": {
                "http": {"endpoint": http.to_string()},
                "grpc": {"endpoint": grpc.to_string()},
            }}},
            "exporters": {"file": {"path": file, "flush_interval": "100ms"}},
            "service": {
                "pipelines": {signal: {"receivers": ["otlp"], "exporters": ["file"]}},
                "telemetry": {"metrics": {"level": "none"}},
            },
        });
        let path = folder.join("collector.yaml");
        // JSON is YAML.
        std::fs::write(&path, config.to_string())?;
        let program = namespace.cluster().program("otelcol")?;
        let arguments = [format!("--config=file:{}", path.display())];
        let log = folder.join("otelcol.log");
        let mut program = Background::start(&program, &arguments, &log)?;
        in_time("the Collector listens", async {
            let mut ticks = tokio::time::interval(POLL_INTERVAL);
            for address in [http, grpc] {
                while TcpStream::connect(address).await.is_err() {
                    program.must_run()?;
                    ticks.tick().await;
                }
            }
            anyhow::Ok(())
        })
        .await?;
        Ok(Self {
            program,
            http,
            grpc,
            file,
        })
    }

    pub(crate) fn http(&self) -> SocketAddr {
        self.http
    }

    pub(crate) fn grpc(&self) -> SocketAddr {
        self.grpc
    }

    /// Waits until what it received satisfies the predicate.
    pub(crate) async fn until(
        &mut self,
        what: &str,
        is_so: impl Fn(&str) -> bool,
    ) -> anyhow::Result<()> {
        let mut ticks = tokio::time::interval(POLL_INTERVAL);
        in_time(what, async {
            loop {
                ticks.tick().await;
                self.program.must_run()?;
                if is_so(&std::fs::read_to_string(&self.file).unwrap_or_default()) {
                    return Ok(());
                }
            }
        })
        .await
    }

    /// Forgets what it received. The Collector appends to its file.
    pub(crate) fn clear(&self) -> std::io::Result<()> {
        std::fs::File::options()
            .write(true)
            .open(&self.file)?
            .set_len(0)
    }

    /// Waits until the root spans of this number of requests and pods have arrived.
    async fn until_roots(&mut self, wanted: usize) -> anyhow::Result<Vec<Value>> {
        let mut ticks = tokio::time::interval(POLL_INTERVAL);
        in_time("all traces have arrived", async {
            loop {
                ticks.tick().await;
                self.program.must_run()?;
                let spans = spans_of(&self.file);
                if spans.iter().filter(|span| is_root(span)).count() >= wanted {
                    return Ok(spans);
                }
            }
        })
        .await
    }
}

pub(crate) async fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0").await?.local_addr()
}

/// The spans in the file of the Collector, each with the attributes of its resource.
fn spans_of(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let whole = text
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'));
    let mut spans = Vec::new();
    for line in whole {
        let line: Value = serde_json::from_str(line).unwrap();
        for resource_spans in line["resourceSpans"].as_array().unwrap() {
            for scope_spans in resource_spans["scopeSpans"].as_array().unwrap() {
                for span in scope_spans["spans"].as_array().unwrap() {
                    let mut span = span.clone();
                    span["resource"] = resource_spans["resource"]["attributes"].clone();
                    spans.push(span);
                }
            }
        }
    }
    spans
}

fn is_root(span: &Value) -> bool {
    span["parentSpanId"].as_str().unwrap_or_default().is_empty()
}

fn attribute<'s>(span: &'s Value, list: &str, key: &str) -> Option<&'s str> {
    let found = span[list]
        .as_array()?
        .iter()
        .find(|one| one["key"] == key)?;
    found["value"]["stringValue"].as_str()
}

fn seconds(span: &Value, field: &str) -> i64 {
    let nanos: i64 = span[field].as_str().unwrap().parse().unwrap();
    assert_eq!(nanos % 1_000_000, 0, "{span}");
    nanos / 1_000_000_000
}

/// The time of a condition of a pod, in seconds since 1970.
fn condition(pod: &Pod, kind: &str) -> i64 {
    let conditions = pod.status.as_ref().unwrap().conditions.as_ref().unwrap();
    let found = conditions
        .iter()
        .find(|one| one.type_ == kind && one.status == "True");
    let since = found.unwrap().last_transition_time.as_ref().unwrap();
    since.0.as_second()
}

/// Asserts that the trace of a pod is one tree with the times of the API.
fn assert_trace(pod: &Pod, spans: &[&Value]) {
    let name = pod.metadata.name.as_deref().unwrap();
    let roots: Vec<&&Value> = spans.iter().filter(|span| is_root(span)).collect();
    let [root] = roots[..] else {
        panic!("{name} has {} roots", roots.len());
    };
    let uid = pod.metadata.uid.as_deref().unwrap();
    for (list, key, value) in [
        ("attributes", "k8s.pod.name", name),
        ("attributes", "k8s.pod.uid", uid),
        ("attributes", "k8s.deployment.name", "web"),
        (
            "attributes",
            "k8s.node.name",
            pod.spec.as_ref().unwrap().node_name.as_deref().unwrap(),
        ),
        ("attributes", "kubevitals.result", "ready"),
        ("resource", "service.name", "kubevitals"),
    ] {
        assert_eq!(attribute(root, list, key), Some(value), "{key} of {root:#}");
    }
    let created = pod
        .metadata
        .creation_timestamp
        .as_ref()
        .unwrap()
        .0
        .as_second();
    assert_eq!(seconds(root, "startTimeUnixNano"), created, "{name}");
    assert_eq!(
        seconds(root, "endTimeUnixNano"),
        condition(pod, "Ready"),
        "{name}"
    );
    let ids: BTreeSet<&str> = spans
        .iter()
        .map(|span| span["spanId"].as_str().unwrap())
        .collect();
    assert_eq!(ids.len(), spans.len(), "{name}");
    for span in spans.iter().filter(|span| !is_root(span)) {
        let parent = span["parentSpanId"].as_str().unwrap();
        assert!(ids.contains(parent), "{name}: {span:#}");
    }
    // The application is ready at least a second after its start.
    let readiness = spans.iter().filter(|span| span["name"] == "readiness");
    let last = readiness.map(|span| seconds(span, "endTimeUnixNano")).max();
    assert_eq!(last, Some(condition(pod, "Ready")), "{name}: {spans:#?}");
    let status = pod
        .status
        .as_ref()
        .unwrap()
        .container_statuses
        .as_ref()
        .unwrap();
    let state = status[0].state.as_ref().unwrap();
    let running = state.running.as_ref().unwrap().started_at.as_ref().unwrap();
    let of = spans.iter().find(|span| span["name"] == "container");
    let of = of.unwrap_or_else(|| panic!("{name}: {spans:#?}"));
    assert!(
        seconds(of, "startTimeUnixNano") <= running.0.as_second(),
        "{of:#}"
    );
    assert_eq!(
        seconds(of, "endTimeUnixNano"),
        condition(pod, "ContainersReady"),
        "{name}"
    );
    assert_eq!(
        attribute(of, "attributes", "k8s.container.name"),
        Some("main")
    );
    // A pod that fails its probe at first has said so.
    let failed = of["events"].as_array().into_iter().flatten();
    let failed: Vec<&Value> = failed.map(|event| &event["name"]).collect();
    println!("{name}: {} spans, events {failed:?}", spans.len());
}

#[tokio::test]
async fn a_real_collector_receives_one_trace_for_each_pod_over_both_protocols() -> anyhow::Result<()>
{
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("traces").await?;
    let mut collector = Collector::start(&namespace).await?;
    let flag = |address| format!("--otlp-endpoint=http://{address}");
    let (http, grpc) = (flag(collector.http), flag(collector.grpc));
    // Two processes without leader election: both send the same traces.
    let by_http = RecordReader::start(&namespace, &[&http]).await?;
    let by_grpc = RecordReader::start(&namespace, &[&grpc, "--otlp-protocol=grpc"]).await?;

    let mut late = container("main", "sleep 3; touch /tmp/ok; exec sleep 3600");
    late["readinessProbe"] =
        json!({"exec": {"command": ["test", "-e", "/tmp/ok"]}, "periodSeconds": 1});
    namespace
        .apply(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": spec(&json!([late]), &json!({})),
                },
            },
        }))
        .await?;
    let spans = collector.until_roots(4).await?;
    let pods = namespace
        .api::<Pod>()
        .list(&ListParams::default())
        .await?
        .items;
    assert_eq!(pods.len(), 2);
    for (service, reader) in [("http", by_http), ("grpc", by_grpc)] {
        let page = reader.metrics().await?;
        println!(
            "{service}: {}",
            page.lines().filter(|line| line.contains("_spans_")).count()
        );
        reader.stop().await?;
    }

    let mut traces: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for span in &spans {
        let trace = span["traceId"].as_str().unwrap();
        traces.entry(trace).or_default().push(span);
    }
    assert_eq!(traces.len(), 2, "one trace for each pod");
    for pod in &pods {
        let id = pod.metadata.uid.as_deref().unwrap().replace('-', "");
        // By the process that sent it.
        let mut senders: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for span in &traces[&*id] {
            let sender = attribute(span, "resource", "service.instance.id").unwrap();
            senders.entry(sender).or_default().push(span);
        }
        assert_eq!(senders.len(), 2);
        for spans in senders.values() {
            assert_trace(pod, spans);
        }
        let ids = |spans: &[&Value]| -> BTreeSet<String> {
            let each = spans
                .iter()
                .map(|span| span["spanId"].as_str().unwrap().to_owned());
            each.collect()
        };
        let mut of = senders.values().map(|spans| ids(spans));
        assert_eq!(of.next(), of.next(), "two processes, the same spans");
    }
    namespace.finish().await?;
    Ok(())
}
