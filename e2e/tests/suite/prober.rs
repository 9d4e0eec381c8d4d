//! `kubevitals prober` on a real cluster: what is broken shows as exactly that.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kubevitals_e2e::{Background, Cluster, RecordReader, TestNamespace, VirtualNode, get_page};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::in_time;
use crate::node::process_node;
use crate::traces::{Collector, free_address};

const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// A short interval, so that two of them are over soon.
const INTERVAL: &str = "--report-interval=2s";

/// A DNS server of a few lines: each name has the address 192.0.2.1.
const DNS_SERVER: &str = "import socket\n\
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('127.0.0.1', PORT))\n\
    while True:\n\
    \x20q, a = s.recvfrom(512)\n\
    \x20e = q.index(b'\\0', 12) + 5\n\
    \x20s.sendto(q[:2] + b'\\x81\\x80\\0\\1\\0\\1\\0\\0\\0\\0' + q[12:e] + \
    b'\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\5\\0\\4\\xc0\\0\\2\\1', a)\n";

/// Starts a prober as an administrator; its lines are data points.
async fn prober(namespace: &TestNamespace, flags: &[String]) -> anyhow::Result<RecordReader> {
    let own = [
        "prober".to_owned(),
        "--provider=jsonl".to_owned(),
        INTERVAL.to_owned(),
        format!(
            "--kubeconfig={}",
            namespace.cluster().kubeconfig().display()
        ),
        format!("--namespace={}", namespace.name()),
        format!("--addon-namespace={}", namespace.name()),
        format!("--addon=agent@{}=app=agent", namespace.name()),
        format!("--addon=dns@{}=app=dns", namespace.name()),
    ];
    Ok(RecordReader::run(namespace, own.into_iter().chain(flags.iter().cloned())).await?)
}

/// The newest value of each series of a metric for an addon, by the value of one label.
fn newest(lines: &[Value], name: &str, addon: &str, label: &str) -> BTreeMap<String, i64> {
    let wanted = |line: &&Value| line["name"] == name && line["attributes"]["addon"] == addon;
    let last = lines.iter().rfind(|line| wanted(line));
    let Some(time) = last.map(|line| &line["time"]) else {
        return BTreeMap::new();
    };
    let of_tick = lines
        .iter()
        .filter(|line| wanted(line) && line["time"] == *time);
    of_tick
        .map(|line| {
            let label = line["attributes"][label].as_str().unwrap_or_default();
            (label.to_owned(), line["value"].as_i64().unwrap())
        })
        .collect()
}

fn is(found: &BTreeMap<String, i64>, label: &str, value: i64) -> bool {
    *found == BTreeMap::from([(label.to_owned(), value)])
}

#[tokio::test]
async fn a_daemon_set_that_is_broken_on_one_node_shows_as_exactly_that() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("prober-addon").await?;
    let virtual_node: VirtualNode = process_node(&namespace).await?;
    let script = format!(
        "test \"$NODE\" = '{}' && exit 1; sleep 86400",
        virtual_node.name()
    );
    namespace
        .apply(&json!({
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "agent"},
            "spec": {
                "selector": {"matchLabels": {"app": "agent"}},
                "template": {
                    "metadata": {"labels": {"app": "agent"}},
                    "spec": {
                        "tolerations": [{"operator": "Exists"}],
                        "automountServiceAccountToken": false,
                        "terminationGracePeriodSeconds": 0,
                        "containers": [{
                            "name": "agent",
                            "image": "kubevitals.test/busybox:1",
                            "command": ["/bin/sh", "-c", script],
                            "env": [{"name": "NODE", "valueFrom": {"fieldRef": {
                                "fieldPath": "spec.nodeName",
                            }}}],
                        }],
                    },
                },
            },
        }))
        .await?;
    let mut whole = prober(&namespace, &["--mode=cluster".to_owned()]).await?;
    let of_node = |name: &str| vec!["--mode=node".to_owned(), format!("--node-name={name}")];
    let mut good = prober(&namespace, &of_node(cluster.node_name())).await?;
    let mut broken = prober(&namespace, &of_node(virtual_node.name())).await?;
    let expected = |lines: &[Value]| {
        let found = newest(lines, "cluster/addons_expected", "agent", "controller");
        // Virtual nodes of other tests have a pod too.
        found.get("DaemonSet").is_some_and(|pods| *pods >= 2)
    };
    whole.until("two pods are expected", expected).await?;
    let available = |lines: &[Value]| newest(lines, "addon/available", "agent", "available");
    let is_up = |lines: &[Value]| is(&available(lines), "True", 1);
    let is_down = |lines: &[Value]| is(&available(lines), "False", 1);
    good.until("the agent of the good node is available", is_up)
        .await?;
    broken
        .until("the agent of the other node is not", is_down)
        .await?;
    let restarted = |lines: &[Value]| {
        let restarts = lines.iter().rfind(|line| line["name"] == "addon/restart");
        restarts.is_some_and(|line| line["kind"] == "counter" && line["value"].as_i64() >= Some(1))
    };
    broken
        .until("restarts of the agent are counted", restarted)
        .await?;
    // The good node was not affected meanwhile.
    let last = available(good.lines());
    assert!(is(&last, "True", 1), "{last:?}");
    for prober in [whole, good, broken] {
        prober.stop().await?;
    }
    namespace
        .kubectl(&["delete", "daemonset", "agent", "--cascade=foreground"])
        .await?;
    virtual_node.stop(&namespace).await?;
    Ok(namespace.finish().await?)
}

#[tokio::test]
async fn a_dns_server_that_is_gone_shows_as_exactly_that() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("prober-dns").await?;
    let virtual_node = process_node(&namespace).await?;
    let port = free_address().await?.port();
    let script = DNS_SERVER.replace("PORT", &port.to_string());
    let mut spec = virtual_node.placement();
    spec["automountServiceAccountToken"] = json!(false);
    spec["terminationGracePeriodSeconds"] = json!(0);
    spec["containers"] =
        json!([{"name": "dns", "image": "none", "command": ["python3", "-c", script]}]);
    namespace
        .apply(&json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "dns"},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": "dns"}},
                "template": {"metadata": {"labels": {"app": "dns"}}, "spec": spec},
            },
        }))
        .await?;
    let probes = json!({
        "modules": {"lookup": {"prober": "dns", "timeout": "1s", "dns": {
            "query_name": "kubernetes.default.svc.cluster.local", "query_type": "A",
        }}},
        "probes": [
            {"name": "dns", "module": "lookup", "targets": [format!("127.0.0.1:{port}")],
             "interval": "1s"},
            // Something that stays: only the DNS server fails.
            {"name": "api", "module": "tcp_connect",
             "targets": [cluster.config().cluster_url.authority().unwrap().as_str()],
             "interval": "1s"},
        ],
    });
    let file = namespace.write("probes.yaml", &probes.to_string())?;
    let flags = [
        "--mode=node".to_owned(),
        format!("--node-name={}", virtual_node.name()),
        format!("--probes={}", file.display()),
    ];
    let prober = prober(&namespace, &flags).await?;
    let up = |probe: &str, value: u8| {
        let probe = format!("probe=\"{probe}\"");
        move |page: &str| {
            let mut series = page
                .lines()
                .filter(|line| line.starts_with("kubevitals_probe_up{") && line.contains(&probe));
            series
                .next()
                .is_some_and(|line| line.ends_with(&format!(" {value}")))
        }
    };
    until_metrics(&prober, "both targets are up", |page| {
        up("dns", 1)(page) && up("api", 1)(page)
    })
    .await?;
    let scale = ["scale", "deployment", "dns", "--replicas=0"];
    namespace.kubectl(&scale).await?;
    let page = until_metrics(&prober, "the DNS server is down", up("dns", 0)).await?;
    assert!(up("api", 1)(&page), "{page}");
    let reasons: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("kubevitals_probe_failures_total{"))
        .collect();
    assert!(
        reasons.iter().all(|line| line.contains("probe=\"dns\"")
            && (line.contains("dns_timeout") || line.contains("connect_refused"))),
        "{reasons:?}"
    );
    prober.stop().await?;
    namespace.delete::<Deployment>("dns").await?;
    virtual_node.stop(&namespace).await?;
    Ok(namespace.finish().await?)
}

/// Polls the page of metrics until the predicate holds.
async fn until_metrics(
    prober: &RecordReader,
    what: &str,
    is_so: impl Fn(&str) -> bool,
) -> anyhow::Result<String> {
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    in_time(what, async {
        loop {
            ticks.tick().await;
            let page = prober.metrics().await?;
            if is_so(&page) {
                return Ok(page);
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_real_collector_receives_the_metrics_of_the_prober() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("prober-otlp").await?;
    let mut collector = Collector::start_for(&namespace, "metrics").await?;
    for (protocol, address) in [
        ("http/protobuf", collector.http()),
        ("grpc", collector.grpc()),
    ] {
        let flags = [
            "--mode=cluster".to_owned(),
            "--provider=otlp".to_owned(),
            format!("--otlp-endpoint=http://{address}"),
            format!("--otlp-protocol={protocol}"),
        ];
        let prober = prober(&namespace, &flags).await?;
        let node = cluster.node_name();
        let received =
            |text: &str| text.contains("k8s.node.condition") && text.contains("\"Ready\"");
        collector.until(protocol, received).await?;
        println!("{node}: {protocol}");
        prober.stop().await?;
        collector.clear()?;
    }
    Ok(namespace.finish().await?)
}

/// Answers each request with a status, and closes.
async fn http_server(status: &'static str) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = [0; 4096];
                let _read = stream.read(&mut head).await;
                let response = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
                );
                let _written = stream.write_all(response.as_bytes()).await;
            });
        }
    });
    Ok(address)
}

/// The value of a metric without labels.
fn value(page: &str, name: &str) -> Option<f64> {
    page.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
        .and_then(|value| value.parse().ok())
}

/// Starts blackbox_exporter, and waits until it listens.
async fn blackbox_exporter(
    namespace: &TestNamespace,
    file: &Path,
) -> anyhow::Result<(Background, SocketAddr)> {
    let address = free_address().await?;
    let flags = [
        format!("--config.file={}", file.display()),
        format!("--web.listen-address={address}"),
    ];
    let log = namespace.folder().join("blackbox.log");
    let program = namespace.cluster().program("blackbox-exporter")?;
    let mut peer = Background::start(&program, &flags, &log)?;
    in_time("blackbox_exporter listens", async {
        let mut ticks = tokio::time::interval(POLL_INTERVAL);
        while TcpStream::connect(address).await.is_err() {
            peer.must_run()?;
            ticks.tick().await;
        }
        anyhow::Ok(())
    })
    .await?;
    Ok((peer, address))
}

#[tokio::test]
async fn verdicts_are_those_of_blackbox_exporter() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("prober-peer").await?;
    let (fine, missing) = (
        http_server("200 OK").await?,
        http_server("404 Not Found").await?,
    );
    let refused = free_address().await?;
    let api = cluster
        .config()
        .cluster_url
        .authority()
        .unwrap()
        .to_string();
    let ip = json!({"preferred_ip_protocol": "ip4"});
    let http = |more: Value| {
        let mut http = ip.clone();
        http.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({"prober": "http", "timeout": "5s", "http": http})
    };
    let modules = json!({"modules": {
        "ok": http(json!({})),
        "not_found": http(json!({"valid_status_codes": [404]})),
        "has_hello": http(json!({"fail_if_body_not_matches_regexp": ["hel+o"]})),
        "no_hello": http(json!({"fail_if_body_matches_regexp": ["hel+o"]})),
        "authority": http(json!({
            "valid_status_codes": [200, 401, 403],
            "tls_config": {"ca_file": cluster.authority()},
        })),
        "connects": {"prober": "tcp", "timeout": "5s", "tcp": ip},
        "says": {"prober": "tcp", "timeout": "5s", "tcp": {
            "preferred_ip_protocol": "ip4",
            "query_response": [{"send": "GET / HTTP/1.0\r\n\r\n"}, {"expect": "^HTTP/1.1 200"}],
        }},
    }});
    let theirs_file = namespace.write("blackbox.yml", &modules.to_string())?;
    let kubevitals = cluster.program("kubevitals")?;
    let converted = tokio::process::Command::new(&kubevitals)
        .args(["prober", "--convert-blackbox"])
        .arg(&theirs_file)
        .output()
        .await?;
    let error = String::from_utf8_lossy(&converted.stderr);
    assert!(converted.status.success(), "{error}");
    let mut ours_text = String::from_utf8(converted.stdout)?;
    ours_text.push_str("\nendpoint:\n  allow_targets: [\"*\"]\n");
    let ours_file = namespace.write("probes.yaml", &ours_text)?;

    let (mut peer, theirs) = blackbox_exporter(&namespace, &theirs_file).await?;
    let flags = [
        "--mode=cluster".to_owned(),
        format!("--probes={}", ours_file.display()),
    ];
    let prober = prober(&namespace, &flags).await?;

    let url = |address: SocketAddr| format!("http://{address}/");
    for (module, target, is_up) in [
        ("ok", url(fine), true),
        ("ok", url(missing), false),
        ("ok", url(refused), false),
        ("not_found", url(missing), true),
        ("not_found", url(fine), false),
        ("has_hello", url(fine), true),
        ("no_hello", url(fine), false),
        ("authority", format!("https://{api}/version"), true),
        ("ok", format!("https://{api}/version"), false),
        ("connects", fine.to_string(), true),
        ("connects", refused.to_string(), false),
        ("says", fine.to_string(), true),
        ("says", missing.to_string(), false),
    ] {
        let path = format!("/probe?module={module}&target={target}");
        let (_, theirs) = in_time("their verdict", get_page(theirs, &path)).await?;
        let (_, ours) = in_time("our verdict", get_page(prober.admin(), &path)).await?;
        let context = || format!("{path}\n{theirs}\n{ours}");
        let expected = Some(f64::from(u8::from(is_up)));
        assert_eq!(value(&theirs, "probe_success"), expected, "{}", context());
        assert_eq!(value(&ours, "probe_success"), expected, "{}", context());
        for name in ["probe_http_status_code", "probe_ip_protocol"] {
            let theirs = value(&theirs, name).filter(|value| *value > 0.0);
            assert_eq!(value(&ours, name), theirs, "{name}: {}", context());
        }
    }
    peer.kill();
    prober.stop().await?;
    Ok(namespace.finish().await?)
}
