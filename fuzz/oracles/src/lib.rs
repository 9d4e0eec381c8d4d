//! Oracles, one function per fuzz target: properties that hold for every input.
//!
//! Each function takes bytes and panics if a property is violated. The binaries in
//! `fuzz/fuzz_targets` pass them to libFuzzer; the test of this crate replays the corpus and a
//! bounded number of mutations of it, so that every target is also an ordinary test.
//!
//! To add a target: a module with a function here, a line in [`TARGETS`], a binary of three lines
//! in `fuzz/fuzz_targets` with its entry and its feature in `fuzz/Cargo.toml`, and a seed or two in
//! `fuzz/corpus/<name>`.

#[cfg(feature = "apiserver")]
mod apiserver;
#[cfg(feature = "cli")]
mod cli;
#[cfg(feature = "container-logs")]
mod container_logs;
#[cfg(feature = "gcm")]
mod gcm;
#[cfg(feature = "host")]
mod host;
#[cfg(feature = "jsonl")]
mod jsonl;
#[cfg(feature = "kube-client-metrics")]
mod kube_client_metrics;
#[cfg(feature = "kubelet-api")]
mod kubelet_api;
#[cfg(feature = "kubelet-api")]
mod kubelet_request;
#[cfg(feature = "model")]
mod model;
#[cfg(feature = "otlp")]
mod otlp;
#[cfg(feature = "probes")]
mod probe_config;
#[cfg(feature = "probes")]
mod probes;
#[cfg(feature = "promtext")]
mod promtext;
#[cfg(feature = "transitions")]
mod recording;
#[cfg(feature = "scrape")]
mod scrape;
#[cfg(feature = "sim")]
mod sim;
#[cfg(feature = "spdy")]
mod spdy;
#[cfg(feature = "telemetry")]
mod telemetry;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "watch")]
mod watch;

#[cfg(feature = "apiserver")]
pub use apiserver::api_request;
#[cfg(feature = "cli")]
pub use cli::config_file;
#[cfg(feature = "container-logs")]
pub use container_logs::log_line;
#[cfg(feature = "gcm")]
pub use gcm::gcm_response;
#[cfg(feature = "host")]
pub use host::host_files;
#[cfg(feature = "jsonl")]
pub use jsonl::start_lines;
#[cfg(feature = "kube-client-metrics")]
pub use kube_client_metrics::client_request;
#[cfg(feature = "kubelet-api")]
pub use kubelet_api::websocket_frames;
#[cfg(feature = "kubelet-api")]
pub use kubelet_request::kubelet_request;
#[cfg(feature = "model")]
pub use model::{duration, no_proxy, quantity, timestamp};
#[cfg(feature = "otlp")]
pub use otlp::{otlp_response, otlp_trace};
#[cfg(feature = "probes")]
pub use probe_config::{blackbox_config, probes_config};
#[cfg(feature = "probes")]
pub use probes::{dns_message, probe_target};
#[cfg(feature = "promtext")]
pub use promtext::promtext;
#[cfg(feature = "transitions")]
pub use recording::recording;
#[cfg(feature = "scrape")]
pub use scrape::{gzip_body, metrics_resource, stats_summary};
#[cfg(feature = "sim")]
pub use sim::{fault_spec, selector};
#[cfg(feature = "spdy")]
pub use spdy::spdy_frames;
#[cfg(feature = "telemetry")]
pub use telemetry::{admin_input, exposition, heap_profile};
#[cfg(feature = "tls")]
pub use tls::tls_pem;
#[cfg(feature = "watch")]
pub use watch::watch_line;

/// A fuzz target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Name of its binary and of its corpus.
    pub name: &'static str,
    pub oracle: fn(&[u8]),
    /// Fragments of inputs, for mutations that get past the first byte.
    pub tokens: &'static [&'static [u8]],
}

/// Every target.
pub const TARGETS: &[Target] = &[
    #[cfg(feature = "telemetry")]
    Target {
        name: "admin_input",
        oracle: admin_input,
        tokens: telemetry::ADMIN_TOKENS,
    },
    #[cfg(feature = "apiserver")]
    Target {
        name: "api_request",
        oracle: api_request,
        tokens: apiserver::REQUEST_TOKENS,
    },
    #[cfg(feature = "probes")]
    Target {
        name: "blackbox_config",
        oracle: blackbox_config,
        tokens: probe_config::CONFIG_TOKENS,
    },
    #[cfg(feature = "kube-client-metrics")]
    Target {
        name: "client_request",
        oracle: client_request,
        tokens: kube_client_metrics::TOKENS,
    },
    #[cfg(feature = "cli")]
    Target {
        name: "config_file",
        oracle: config_file,
        tokens: cli::TOKENS,
    },
    #[cfg(feature = "probes")]
    Target {
        name: "dns_message",
        oracle: dns_message,
        tokens: probes::DNS_TOKENS,
    },
    #[cfg(feature = "model")]
    Target {
        name: "duration",
        oracle: duration,
        tokens: model::DURATION_TOKENS,
    },
    #[cfg(feature = "telemetry")]
    Target {
        name: "exposition",
        oracle: exposition,
        tokens: telemetry::OPENMETRICS_TOKENS,
    },
    #[cfg(feature = "sim")]
    Target {
        name: "fault_spec",
        oracle: fault_spec,
        tokens: sim::FAULT_TOKENS,
    },
    #[cfg(feature = "gcm")]
    Target {
        name: "gcm_response",
        oracle: gcm_response,
        tokens: gcm::TOKENS,
    },
    #[cfg(feature = "scrape")]
    Target {
        name: "gzip_body",
        oracle: gzip_body,
        tokens: scrape::GZIP_TOKENS,
    },
    #[cfg(feature = "telemetry")]
    Target {
        name: "heap_profile",
        oracle: heap_profile,
        tokens: telemetry::HEAP_TOKENS,
    },
    #[cfg(feature = "host")]
    Target {
        name: "host_files",
        oracle: host_files,
        tokens: host::TOKENS,
    },
    #[cfg(feature = "kubelet-api")]
    Target {
        name: "kubelet_request",
        oracle: kubelet_request,
        tokens: kubelet_request::TOKENS,
    },
    #[cfg(feature = "container-logs")]
    Target {
        name: "log_line",
        oracle: log_line,
        tokens: container_logs::TOKENS,
    },
    #[cfg(feature = "scrape")]
    Target {
        name: "metrics_resource",
        oracle: metrics_resource,
        tokens: scrape::METRICS_TOKENS,
    },
    #[cfg(feature = "model")]
    Target {
        name: "no_proxy",
        oracle: no_proxy,
        tokens: model::NO_PROXY_TOKENS,
    },
    #[cfg(feature = "otlp")]
    Target {
        name: "otlp_response",
        oracle: otlp_response,
        tokens: otlp::RESPONSE_TOKENS,
    },
    #[cfg(feature = "otlp")]
    Target {
        name: "otlp_trace",
        oracle: otlp_trace,
        tokens: otlp::TRACE_TOKENS,
    },
    #[cfg(feature = "probes")]
    Target {
        name: "probe_target",
        oracle: probe_target,
        tokens: probes::TARGET_TOKENS,
    },
    #[cfg(feature = "probes")]
    Target {
        name: "probes_config",
        oracle: probes_config,
        tokens: probe_config::CONFIG_TOKENS,
    },
    #[cfg(feature = "promtext")]
    Target {
        name: "promtext",
        oracle: promtext,
        tokens: promtext::TOKENS,
    },
    #[cfg(feature = "model")]
    Target {
        name: "quantity",
        oracle: quantity,
        tokens: model::QUANTITY_TOKENS,
    },
    #[cfg(feature = "transitions")]
    Target {
        name: "recording",
        oracle: recording,
        tokens: recording::TOKENS,
    },
    #[cfg(feature = "sim")]
    Target {
        name: "selector",
        oracle: selector,
        tokens: sim::SELECTOR_TOKENS,
    },
    #[cfg(feature = "spdy")]
    Target {
        name: "spdy_frames",
        oracle: spdy_frames,
        tokens: spdy::TOKENS,
    },
    #[cfg(feature = "jsonl")]
    Target {
        name: "start_lines",
        oracle: start_lines,
        tokens: jsonl::TOKENS,
    },
    #[cfg(feature = "scrape")]
    Target {
        name: "stats_summary",
        oracle: stats_summary,
        tokens: scrape::SUMMARY_TOKENS,
    },
    #[cfg(feature = "model")]
    Target {
        name: "timestamp",
        oracle: timestamp,
        tokens: model::TIMESTAMP_TOKENS,
    },
    #[cfg(feature = "tls")]
    Target {
        name: "tls_pem",
        oracle: tls_pem,
        tokens: tls::TOKENS,
    },
    #[cfg(feature = "watch")]
    Target {
        name: "watch_line",
        oracle: watch_line,
        tokens: watch::TOKENS,
    },
    #[cfg(feature = "kubelet-api")]
    Target {
        name: "websocket_frames",
        oracle: websocket_frames,
        tokens: kubelet_api::WEBSOCKET_TOKENS,
    },
];
