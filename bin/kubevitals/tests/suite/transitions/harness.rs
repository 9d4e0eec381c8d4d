//! A role in this process, its lines, and an API server whose pods a test controls.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use kubevitals_cli::ShutdownTrigger;
use kubevitals_model::Timestamp;
use kubevitals_sim::api::{Rule, SimApi, SimApiConfig, SimApiHandle, User};
use kubevitals_sim::objects::Resource;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::schema::Schema;
use crate::{DEADLINE, roles, within};

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::new(kubevitals_jsonl::SCHEMA));

/// An API server whose pods a test controls.
pub(crate) struct Cluster {
    pub(crate) api: SimApiHandle,
    folder: TempDir,
}

/// A role in this process.
pub(crate) struct RoleHarness {
    pub(crate) admin: SocketAddr,
    lines: watch::Receiver<Vec<u8>>,
    trigger: ShutdownTrigger,
    task: JoinHandle<Result<(), String>>,
}

/// Collects lines.
pub(crate) struct LineCollector(watch::Sender<Vec<u8>>);

/// Receives the status lines of the role.
struct StatusLines(mpsc::Sender<String>);

impl Cluster {
    pub(crate) async fn start() -> Self {
        kubevitals_tls::install_crypto_provider();
        let api = SimApi::start(SimApiConfig::default()).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("kubeconfig"), api.kubeconfig()).unwrap();
        Self { api, folder }
    }

    /// Lets roles run as a user with these permissions alone: verbs, API group, resource.
    pub(crate) fn restrict(&self, rules: &[(&[&str], &str, &str)]) {
        let name = "system:serviceaccount:kube-system:kubevitals-transitions";
        for (verbs, group, resource) in rules {
            let verbs = verbs.iter().copied();
            self.api
                .allow(Rule::for_user(name, verbs, group, [*resource]));
        }
        let user = User::new(name, ["system:serviceaccounts"]);
        let token = self.api.issue_token(user, None).unwrap();
        std::fs::write(self.kubeconfig(), self.api.kubeconfig_for_token(&token)).unwrap();
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// Creates a pod.
    pub(crate) fn create(&self, name: &str) {
        self.create_in("default", name);
    }

    pub(crate) fn create_in(&self, namespace: &str, name: &str) {
        let pod = pod(
            namespace,
            name,
            &json!({"phase": "Pending", "qosClass": "BestEffort"}),
        );
        self.api.writer().create(Resource::Pods, pod).unwrap();
    }

    /// Makes a pod ready.
    pub(crate) fn make_ready(&self, name: &str) {
        self.make_ready_in("default", name);
    }

    /// Creates a pod with this time of creation.
    pub(crate) fn create_at(&self, name: &str, created: &str, status: &Value) {
        let mut pod = pod("default", name, status);
        pod["metadata"]["creationTimestamp"] = created.into();
        self.api.writer().create(Resource::Pods, pod).unwrap();
    }

    /// Sets these members of a pod's metadata and status.
    pub(crate) fn set(&self, name: &str, meta: &Value, status: &Value) {
        let known = self
            .api
            .object(Resource::Pods, Some("default"), name)
            .unwrap();
        let mut pod = known;
        for (part, members) in [("metadata", meta), ("status", status)] {
            for (key, value) in members.as_object().unwrap() {
                pod[part][key] = value.clone();
            }
        }
        pod["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("resourceVersion");
        self.api.writer().replace(Resource::Pods, pod).unwrap();
    }

    pub(crate) fn make_ready_in(&self, namespace: &str, name: &str) {
        let now = Timestamp::from_system_time(SystemTime::now());
        let now = now.rfc3339_seconds().to_string();
        let condition = |kind| json!({"type": kind, "status": "True", "lastTransitionTime": now});
        let kinds = [
            "PodScheduled",
            "PodReadyToStartContainers",
            "Initialized",
            "ContainersReady",
            "Ready",
        ];
        let status = json!({
            "phase": "Running", "qosClass": "BestEffort", "startTime": now,
            "conditions": kinds.map(condition),
            "containerStatuses": [{"name": "app", "ready": true, "started": true, "restartCount": 0,
                "image": "web:2", "imageID": "", "state": {"running": {"startedAt": now}}}],
        });
        let mut pod = pod(namespace, name, &status);
        let known = self
            .api
            .object(Resource::Pods, Some(namespace), name)
            .unwrap();
        pod["metadata"] = known["metadata"].clone();
        pod["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("resourceVersion");
        self.api.writer().replace(Resource::Pods, pod).unwrap();
    }

    pub(crate) fn delete(&self, name: &str) {
        let writer = self.api.writer();
        writer
            .delete(Resource::Pods, Some("default"), name)
            .unwrap();
    }

    /// Waits until this number of watches is open.
    pub(crate) async fn until_watches(&self, wanted: usize) {
        let waited = timeout(DEADLINE, async {
            let mut ticks = tokio::time::interval(Duration::from_millis(20));
            while self.api.open_watches() != wanted {
                ticks.tick().await;
            }
        });
        let is_so = waited.await.is_ok();
        assert!(is_so, "{} watches are open", self.api.open_watches());
    }

    /// Creates an event of the kubelet about the pod's container.
    pub(crate) fn event(&self, pod: &str, reason: &str, message: &str, age: Duration) {
        self.event_in("default", pod, reason, message, age);
    }

    pub(crate) fn event_in(
        &self,
        namespace: &str,
        pod: &str,
        reason: &str,
        message: &str,
        age: Duration,
    ) {
        let known = self.api.object(Resource::Pods, Some(namespace), pod);
        let uid = known.map_or(json!("00000000-0000-4000-8000-00000000dead"), |known| {
            known["metadata"]["uid"].clone()
        });
        let now = Timestamp::from_system_time(SystemTime::now() - age);
        let now = now.rfc3339_seconds().to_string();
        let name = format!("{pod}.{reason}.{}", self.api.resource_version());
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {"kind": "Pod", "namespace": namespace, "name": pod, "uid": uid,
                "fieldPath": "spec.containers{app}"},
            "reason": reason, "message": message, "type": "Normal", "count": 1,
            "firstTimestamp": now, "lastTimestamp": now, "source": {"component": "kubelet"},
        });
        self.api.writer().create(Resource::Events, event).unwrap();
    }

    /// Creates an event of another component about the whole pod, as client-go's recorders of
    /// `events.k8s.io` do.
    pub(crate) fn event_by(
        &self,
        component: &str,
        time: SystemTime,
        (pod, reason, message): (&str, &str, &str),
    ) {
        let known = self.api.object(Resource::Pods, Some("default"), pod);
        let uid = known.unwrap()["metadata"]["uid"].clone();
        let time = Timestamp::from_system_time(time).rfc3339_seconds();
        let time = time.to_string().replace('Z', ".000000Z");
        let name = format!("{pod}.{component}.{}", self.api.resource_version());
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "default"},
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": pod, "uid": uid},
            "reason": reason, "message": message, "type": "Warning", "source": {},
            "eventTime": time, "reportingComponent": component,
            "reportingInstance": format!("{component}-0"), "action": "Scheduling",
        });
        self.api.writer().create(Resource::Events, event).unwrap();
    }
}

impl RoleHarness {
    /// Starts the role without a delay for late events.
    pub(crate) async fn start(cluster: &Cluster, more: &[&str]) -> Self {
        let (sender, lines) = watch::channel(Vec::new());
        Self::start_with(cluster, more, Box::new(LineCollector(sender)), lines).await
    }

    pub(crate) async fn start_with(
        cluster: &Cluster,
        more: &[&str],
        out: Box<dyn Write + Send>,
        lines: watch::Receiver<Vec<u8>>,
    ) -> Self {
        let kubeconfig = cluster.kubeconfig();
        let mut words = vec![
            "--roles=transitions".to_owned(),
            "--shutdown-grace-period=10s".to_owned(),
            format!("--kubeconfig-path={}", kubeconfig.display()),
        ];
        if !more
            .iter()
            .any(|flag| flag.starts_with("--image-pull-cancel-delay"))
        {
            words.push("--image-pull-cancel-delay=0".to_owned());
        }
        words.extend(more.iter().map(ToString::to_string));
        let (sender, mut status) = mpsc::channel(8);
        let (trigger, task) = roles::start(words, StatusLines(sender), Some(out));
        let line = timeout(DEADLINE, status.recv()).await.unwrap();
        let line = line.expect("the role prints the address of its admin server");
        let admin = line.trim_end().rsplit('/').next().unwrap().parse().unwrap();
        Self {
            admin,
            lines,
            trigger,
            task,
        }
    }

    /// Starts the role and waits until it is ready.
    pub(crate) async fn ready(cluster: &Cluster, more: &[&str]) -> Self {
        let role = Self::start(cluster, more).await;
        role.until("/readyz", |text| text.starts_with("200")).await;
        role
    }

    /// The lines so far, each validated.
    pub(crate) fn lines(&self) -> Vec<Value> {
        parse(&self.lines.borrow())
    }

    /// Waits until the lines match.
    pub(crate) async fn until_lines(&mut self, is_wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let waited = timeout(
            DEADLINE,
            self.lines.wait_for(|text| is_wanted(&parse(text))),
        );
        let text = waited.await.ok().map(|text| text.unwrap().clone());
        let text = text.unwrap_or_else(|| panic!("not in time: {:#?}", self.lines()));
        parse(&text)
    }

    pub(crate) async fn until_pods(&mut self, pods: usize) -> BTreeMap<String, usize> {
        let lines = self
            .until_lines(|lines| count(lines, "pod").len() >= pods)
            .await;
        count(&lines, "pod")
    }

    /// A response of the admin server to a request with this header.
    pub(crate) async fn bytes(&self, path: &str, header: &str) -> Vec<u8> {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: admin\r\n{header}Connection: close\r\n\r\n");
        within(&format!("the response to GET {path}"), async {
            let mut stream = TcpStream::connect(self.admin).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut response = Vec::new();
            stream.read_to_end(&mut response).await.unwrap();
            response
        })
        .await
    }

    /// A response of the admin server: status code and body.
    pub(crate) async fn ask(&self, path: &str) -> String {
        let response = String::from_utf8(self.bytes(path, "").await).unwrap();
        let status = response.split(' ').nth(1).unwrap().to_owned();
        let body = response.split_once("\r\n\r\n").unwrap().1;
        format!("{status}\n{body}")
    }

    /// Polls until a response matches.
    pub(crate) async fn until(&self, path: &str, is_wanted: impl Fn(&str) -> bool) -> String {
        let mut last = String::new();
        let polled = timeout(DEADLINE, async {
            let mut ticks = tokio::time::interval(Duration::from_millis(20));
            loop {
                ticks.tick().await;
                last = self.ask(path).await;
                if is_wanted(&last) {
                    return;
                }
            }
        });
        let is_so = polled.await.is_ok();
        assert!(is_so, "{path} does not match in time: {last}");
        last
    }

    /// The value of a series; `None` if it is absent.
    pub(crate) async fn metric(&self, series: &str) -> Option<u64> {
        value_of(&self.ask("/metrics").await, series)
    }

    pub(crate) async fn until_metric(&self, series: &str, is_wanted: impl Fn(u64) -> bool) {
        self.until("/metrics", |text| {
            value_of(text, series).is_some_and(&is_wanted)
        })
        .await;
    }

    /// Shuts the role down and returns all its lines.
    pub(crate) async fn stop(self) -> Vec<Value> {
        self.trigger.trigger();
        let ended = within("the role ends after its shutdown", self.task).await;
        ended.unwrap().unwrap();
        let lines = self.lines.borrow();
        parse(&lines)
    }
}

impl LineCollector {
    pub(crate) fn new() -> (Self, watch::Receiver<Vec<u8>>) {
        let (sender, receiver) = watch::channel(Vec::new());
        (Self(sender), receiver)
    }
}

impl Write for LineCollector {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send_modify(|all| all.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for StatusLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes).into_owned();
        self.0.try_send(text).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The number of lines of a type, by pod.
pub(crate) fn count(lines: &[Value], kind: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in lines {
        let metrics = &line["kube_transition_metrics"];
        if metrics["type"] == kind {
            let name = metrics["pod_name"].as_str().unwrap().to_owned();
            *counts.entry(name).or_default() += 1;
        }
    }
    counts
}

/// Whole lines, checked against the schema.
fn parse(text: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(text).unwrap();
    text.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .map(|line| {
            let line = serde_json::from_str(line).unwrap();
            assert_eq!(SCHEMA.violation(&line), None, "{line}");
            line
        })
        .collect()
}

fn value_of(text: &str, series: &str) -> Option<u64> {
    let line = text.lines().find(|line| {
        line.strip_prefix(series)
            .is_some_and(|rest| rest.starts_with(' '))
    })?;
    line.rsplit(' ').next().unwrap().parse().ok()
}

fn pod(namespace: &str, name: &str, status: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": {"nodeName": "n1", "containers": [{"name": "app", "image": "web:2"}]},
        "status": status,
    })
}
