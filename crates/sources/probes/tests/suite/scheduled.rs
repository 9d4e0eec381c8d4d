//! From a configuration to results, over real connections.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubevitals_model::Clock;
use kubevitals_probes::{
    Allow, Completed, Config, EndpointRequest, NoTargets, OutcomeSink, ProbeExecutor, ProbeInfo,
    Scheduler, SchedulerOptions, SystemResolver, Variables, Verdict, render_probe,
};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::support::{GENEROUS, Server};

/// Passes results on to the test.
struct Results(mpsc::Sender<Completed>);

impl OutcomeSink for Results {
    fn completed(&self, completed: &Completed) {
        // Results that the test does not wait for are lost.
        let _ = self.0.try_send(completed.clone());
    }

    fn removed(&self, _probe: &ProbeInfo, _target: &str) {}
}

fn executor() -> ProbeExecutor {
    ProbeExecutor::new(Clock::system(), Arc::new(SystemResolver), Allow::default())
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello";

#[tokio::test]
async fn a_configuration_runs_and_judges_good_and_bad_targets() {
    let web = Server::http(OK).await;
    // It accepts and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let text = format!(
        "
probes:
  - name: web
    module: {{prober: http, timeout: 500ms, http: {{fail_if_body_not_matches_regexp: [hello]}}}}
    targets: ['http://{}/', 'http://{}/', 'http://{closed}/']
    interval: 1s
    jitter: 0s
    threshold: 1
",
        web.address,
        silent.local_addr().unwrap(),
    );
    let config = Config::parse(&text, &Variables::default()).unwrap();
    let (sender, mut results) = mpsc::channel(100);
    let scheduler = Scheduler::new(SchedulerOptions {
        clock: Clock::system(),
        executor: Arc::new(executor()),
        sink: Arc::new(Results(sender)),
        concurrency: 10,
        history: 10,
    });
    let jobs = config.jobs(&NoTargets);
    let targets: Vec<_> = jobs
        .iter()
        .map(|job| job.target.as_str().to_owned())
        .collect();
    scheduler.apply(jobs);
    let mut seen = BTreeMap::new();
    let all = async {
        while seen.len() < 3 {
            let completed = results.recv().await.unwrap();
            let reason = completed
                .outcome
                .failure
                .map(|failure| failure.reason.as_str());
            seen.insert(completed.target.to_string(), (completed.verdict, reason));
        }
    };
    tokio::time::timeout(GENEROUS, all).await.unwrap();
    assert_eq!(seen[&targets[0]], (Verdict::Up, None));
    assert_eq!(seen[&targets[1]], (Verdict::Down, Some("read_timeout")));
    assert_eq!(seen[&targets[2]], (Verdict::Down, Some("connect_refused")));
    assert_eq!(scheduler.shutdown(GENEROUS).await.abandoned, 0);
}

#[tokio::test]
async fn the_endpoint_probes_an_allowed_target_and_writes_the_names_of_blackbox_exporter() {
    let web = Server::http(OK).await;
    let target = format!("http://{}/", web.address);
    let text = "endpoint: {allow_targets: [127.0.0.0/8]}";
    let config = Config::parse(text, &Variables::default()).unwrap();
    let request = EndpointRequest {
        target: Some(&target),
        scrape_timeout: Some("10"),
        ..EndpointRequest::default()
    };
    let probe = config.endpoint(&request).unwrap();
    let context = executor().context(probe.timeout);
    let outcome = probe.module.prober.run(&probe.target, &context).await;
    let text = render_probe(&outcome, probe.module.prober.name(), probe.timeout);
    for line in [
        "probe_success 1\n",
        "probe_http_status_code 200\n",
        "probe_http_content_length 5\n",
        "probe_http_version 1.1\n",
        "probe_timeout_seconds 9.5\n",
        "probe_ip_protocol 4\n",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    for phase in ["resolve", "connect", "processing", "transfer"] {
        let series = format!("probe_http_duration_seconds{{phase=\"{phase}\"}}");
        assert!(text.contains(&series), "{series} in\n{text}");
    }
}
