//! Every endpoint, its methods, and the responses of errors.

use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use kubevitals_kubelet_api::{Provider, ProviderError};
use kubevitals_telemetry::logs::LogCapture;
use kubevitals_telemetry::{LogOptions, Probe, Status};

use crate::client::Client;
use crate::recorded::{self, RESOURCE_METRICS, SUMMARY};
use crate::support::{Invented, Running, everything};

fn recorded_provider() -> Arc<Invented> {
    Arc::new(Invented {
        stats: Arc::new(recorded::summary(SUMMARY)),
        ..Invented::default()
    })
}

#[tokio::test]
async fn pods_are_a_list() {
    let server = Running::with(everything(&recorded_provider()), |config| {
        config.debug = true;
    })
    .await;
    for path in ["/pods", "/pods/", "/runningpods/", "/runningpods"] {
        let response = Client::of(&server).get(path).await;
        assert_eq!(
            (response.code, response.header("content-type")),
            (200, "application/json")
        );
        let text = "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{},\"items\":[\
            {\"metadata\":{\"name\":\"a\"}},{\"metadata\":{\"name\":\"b\"}}]}\n";
        assert_eq!(response.text(), text, "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn running_pods_are_for_debugging() {
    let server = Running::open(everything(&recorded_provider())).await;
    assert_eq!(Client::of(&server).get("/runningpods/").await.code, 404);
    server.stop().await;
}

#[tokio::test]
async fn resource_metrics_are_the_bytes_of_a_kubelet() {
    let invented = Arc::new(Invented {
        stats: Arc::new(recorded::stats(RESOURCE_METRICS[0])),
        ..Invented::default()
    });
    let server = Running::open(everything(&invented)).await;
    let client = Client::of(&server);
    let response = client.get("/metrics/resource").await;
    let content_type = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
    assert_eq!(
        (response.code, response.header("content-type")),
        (200, content_type)
    );
    assert_eq!(response.header("content-encoding"), "");
    let start = "container_start_time_seconds{";
    for (ours, theirs) in response.text().lines().zip(RESOURCE_METRICS[0].lines()) {
        assert!(ours == theirs || ours.starts_with(start), "{ours} {theirs}");
    }
    assert_eq!(client.get("/metrics/resource/").await.body, response.body);
    let gzip = client
        .clone()
        .with("accept-encoding", "gzip")
        .get("/metrics/resource")
        .await;
    assert_eq!(gzip.header("content-encoding"), "gzip");
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&gzip.body[..])
        .read_to_end(&mut plain)
        .unwrap();
    assert!(plain == response.body && gzip.body.len() < plain.len() / 2);
    let zstd = client
        .with("accept-encoding", "zstd")
        .get("/metrics/resource")
        .await;
    assert_eq!(zstd.header("content-encoding"), "zstd");
    let mut plain = Vec::new();
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(&zstd.body[..]).unwrap();
    decoder.read_to_end(&mut plain).unwrap();
    assert!(plain == response.body && zstd.body.len() < plain.len() / 2);
    server.stop().await;
}

#[tokio::test]
async fn statistics_that_cannot_be_read_are_a_scrape_error() {
    let invented = recorded_provider();
    *invented.error.lock() = Some(|| ProviderError::Internal(String::from("no cgroups")));
    let server = Running::with(everything(&invented), |config| config.hidden_metrics = true).await;
    let client = Client::of(&server);
    let response = client.get("/metrics/resource").await;
    assert_eq!(response.code, 200);
    let samples: Vec<&str> = response
        .text()
        .lines()
        .filter(|one| !one.starts_with('#'))
        .collect();
    assert_eq!(samples, ["resource_scrape_error 1", "scrape_error 1"]);
    for path in ["/stats/summary", "/metrics/cadvisor"] {
        let response = client.get(path).await;
        assert_eq!(
            (response.code, response.text()),
            (500, "no cgroups\n"),
            "{path}"
        );
    }
    *invented.error.lock() = None;
    let response = client.get("/metrics/resource").await;
    assert!(response.text().contains("\nresource_scrape_error 0\n"));
    server.stop().await;
}

#[tokio::test]
async fn summaries_are_the_bytes_of_a_kubelet() {
    let server = Running::open(everything(&recorded_provider())).await;
    let client = Client::of(&server);
    for path in ["/stats/summary", "/stats/summary/"] {
        let response = client.get(path).await;
        assert_eq!(
            (response.code, response.header("content-type")),
            (200, "application/json")
        );
        assert_eq!(response.text(), SUMMARY);
        assert_eq!(client.post(path).await.text(), SUMMARY);
    }
    let has_network =
        |response: &crate::client::Received| response.json()["node"].get("network").is_some();
    assert!(!has_network(
        &client.get("/stats/summary?only_cpu_and_memory=true").await
    ));
    assert!(
        has_network(&client.get("/stats/summary?only_cpu_and_memory=1").await),
        "as in Go"
    );
    let form = client.clone().form("only_cpu_and_memory=true");
    assert!(!has_network(&form.post("/stats/summary").await));
    let twice = form.post("/stats/summary?only_cpu_and_memory=true").await;
    assert!(has_network(&twice), "only one value counts, as in Go");
    server.stop().await;
}

#[tokio::test]
async fn a_form_that_is_too_large_is_rejected() {
    static FORM: std::sync::LazyLock<String> =
        std::sync::LazyLock::new(|| format!("a={}", "x".repeat(1 << 16)));
    let server = Running::open(everything(&recorded_provider())).await;
    let client = Client::of(&server).form(FORM.as_str());
    assert_eq!(client.post("/stats/summary").await.code, 400);
    server.stop().await;
}

#[tokio::test]
async fn other_metrics_are_served() {
    let server = Running::open(everything(&recorded_provider())).await;
    let client = Client::of(&server);
    let cadvisor = client.get("/metrics/cadvisor").await;
    assert!(
        cadvisor
            .text()
            .contains("container_cpu_usage_seconds_total{container=\"db\"")
    );
    let probes = client.get("/metrics/probes").await;
    let families = "# HELP z_first A family.\n# TYPE z_first gauge\nz_first{pod=\"a\\\"b\"} 1.5\n\
        # HELP a_second A family.\n# TYPE a_second gauge\na_second{pod=\"a\\\"b\"} 1.5\n";
    assert_eq!(probes.text(), families, "in the order of the provider");
    assert_eq!(
        server.metric("kubevitals_kubelet_invalid_samples_total "),
        Some(1.0)
    );
    let own = client.get("/metrics").await;
    assert!(own.text().contains(
        "kubelet_http_requests_total{long_running=\"false\",method=\"GET\",path=\"metrics/cadvisor\",server_type=\"readwrite\"} 1\n"
    ), "{}", own.text());
    assert!(own.text().contains("kubelet_http_inflight_requests{long_running=\"false\",method=\"GET\",path=\"metrics\",server_type=\"readwrite\"} 1\n"));
    server.stop().await;
}

#[tokio::test]
async fn health_has_named_checks() {
    let server = Running::open(Provider::default()).await;
    let cell = server
        .health
        .cell("syncloop", Probe::LIVENESS, Status::Ok)
        .unwrap();
    let client = Client::of(&server);
    assert_eq!(client.get("/healthz").await.text(), "ok");
    assert_eq!(client.get("/healthz/ping").await.text(), "ok");
    cell.set_failing("stuck");
    let failing = client.get("/healthz").await;
    assert_eq!(failing.code, 500);
    assert!(
        failing.text().contains("[-]syncloop failed"),
        "{}",
        failing.text()
    );
    assert_eq!(client.get("/healthz?exclude=syncloop").await.code, 200);
    assert!(
        client
            .get("/healthz?exclude=syncloop&verbose")
            .await
            .text()
            .contains("[+]ping ok")
    );
    let one = client.get("/healthz/syncloop").await;
    assert_eq!(
        (one.code, one.text()),
        (500, "internal server error: stuck\n")
    );
    assert_eq!(client.get("/healthz/nothing").await.code, 404);
    server.stop().await;
}

#[tokio::test]
async fn a_configuration_is_shown_if_there_is_one() {
    let value = serde_json::json!({"kubeletconfig": {"maxPods": 5}});
    let shown = value.clone();
    let server = Running::with(Provider::default(), |config| config.configz = Some(shown)).await;
    assert_eq!(Client::of(&server).get("/configz").await.json(), value);
    server.stop().await;
    let server = Running::open(Provider::default()).await;
    assert_eq!(Client::of(&server).get("/configz").await.code, 501);
    server.stop().await;
}

#[tokio::test]
async fn a_missing_capability_is_not_implemented() {
    let server = Running::with(Provider::default(), |config| config.debug = true).await;
    let client = Client::of(&server);
    for (path, capability) in [
        ("/pods", "pods"),
        ("/runningpods/", "running pods"),
        ("/metrics/resource", "resource metrics"),
        ("/metrics/cadvisor", "cAdvisor metrics"),
        ("/metrics/probes", "probe metrics"),
        ("/stats/summary", "stats"),
        ("/containerLogs/ns/pod/app", "logs"),
        ("/exec/ns/pod/app?output=1&command=ls", "exec"),
        ("/attach/ns/pod/app?output=1", "attach"),
        ("/portForward/ns/pod", "port-forward"),
    ] {
        let response = client.get(path).await;
        let text = format!("the provider does not support {capability}\n");
        assert_eq!((response.code, response.text()), (501, &*text), "{path}");
    }
    assert_eq!(client.post("/run/ns/pod/app?cmd=ls").await.code, 501);
    server.stop().await;
}

#[tokio::test]
async fn wrong_methods_and_unknown_paths_are_told_apart() {
    let server = Running::open(everything(&recorded_provider())).await;
    let client = Client::of(&server);
    for (method, path, allow) in [
        (Method::POST, "/pods", "GET"),
        (Method::HEAD, "/pods", "GET"),
        (Method::PUT, "/stats/summary", "GET, POST"),
        (Method::POST, "/metrics/resource/", "GET"),
        (Method::DELETE, "/exec/ns/pod/app", "GET, POST"),
        (Method::POST, "/containerLogs/ns/pod/app", "GET"),
        (Method::GET, "/run/ns/pod/app", "POST"),
        (Method::OPTIONS, "/healthz", "GET"),
    ] {
        let response = client.send(method, path).await;
        assert_eq!(
            (response.code, response.header("allow")),
            (405, allow),
            "{path}"
        );
    }
    for path in [
        "/",
        "/nothing",
        "/metrics/nothing",
        "/logs/",
        "/exec/ns/pod",
        "/exec/ns/%2e%2e/a",
    ] {
        let response = client.get(path).await;
        assert_eq!(
            (response.code, response.text()),
            (404, "404 page not found\n"),
            "{path}"
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn errors_of_the_provider_are_responses() {
    let invented = recorded_provider();
    let server = Running::open(everything(&invented)).await;
    let client = Client::of(&server);
    let cases: [(fn() -> ProviderError, u16); 6] = [
        (|| ProviderError::NotFound(String::from("why")), 404),
        (|| ProviderError::InvalidInput(String::from("why")), 400),
        (|| ProviderError::Conflict(String::from("why")), 409),
        (|| ProviderError::Unavailable(String::from("why")), 503),
        (|| ProviderError::Timeout(String::from("why")), 504),
        (|| ProviderError::Other("why".into()), 500),
    ];
    for (error, code) in cases {
        *invented.error.lock() = Some(error);
        let response = client.get("/pods").await;
        assert_eq!((response.code, response.text()), (code, "why\n"));
        assert_eq!(response.header("x-content-type-options"), "nosniff");
    }
    *invented.error.lock() = Some(|| ProviderError::TooManyRequests {
        message: String::from("busy"),
        retry_after: Duration::from_millis(1500),
    });
    let response = client.get("/pods").await;
    assert_eq!((response.code, response.header("retry-after")), (429, "2"));
    *invented.error.lock() = Some(|| ProviderError::NotImplemented(String::from("not here")));
    assert_eq!(client.get("/metrics/resource").await.code, 501);
    server.stop().await;
}

#[tokio::test]
async fn a_panic_is_a_response() {
    let invented = Arc::new(Invented {
        stats: Arc::new(kubevitals_model::node_stats::NodeStats {
            name: String::from("bug"),
            ..Default::default()
        }),
        ..Invented::default()
    });
    let server = Running::open(everything(&invented)).await;
    let client = Client::of(&server);
    assert_eq!(client.get("/stats/summary").await.code, 500);
    assert_eq!(server.metric("kubevitals_kubelet_panics_total "), Some(1.0));
    assert_eq!(client.get("/healthz").await.code, 200, "the server goes on");
    server.stop().await;
}

#[tokio::test]
async fn a_failing_path_is_logged_once_and_when_it_succeeds_again() {
    let log = LogCapture::start(&LogOptions::default());
    let invented = recorded_provider();
    *invented.error.lock() = Some(|| ProviderError::Internal(String::from("no cgroups")));
    let server = Running::open(everything(&invented)).await;
    let client = Client::of(&server);
    let count = |text: &str| log.text().matches(text).count();
    for _ in 0..3 {
        for path in ["/pods", "/metrics/resource"] {
            client.get(path).await;
        }
    }
    assert_eq!(
        (count("request failed"), count("succeed again")),
        (2, 0),
        "{}",
        log.text()
    );
    *invented.error.lock() = None;
    for _ in 0..3 {
        for path in ["/pods", "/metrics/resource"] {
            assert_eq!(client.get(path).await.code, 200);
        }
    }
    assert_eq!(
        (count("request failed"), count("succeed again")),
        (2, 2),
        "{}",
        log.text()
    );
    server.stop().await;
}
