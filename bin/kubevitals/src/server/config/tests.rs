use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Flags {
    #[command(flatten)]
    server: ServerFlags,
}

fn settings(flags: &[&str]) -> Settings {
    let flags = Flags::parse_from(["test"].iter().chain(flags));
    Settings::new(&flags.server).unwrap()
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn the_defaults_are_those_of_metrics_server() {
    let settings = settings(&[]);
    assert_eq!(settings.usage.resolution, seconds(60));
    assert_eq!(settings.kubelet_timeout, seconds(10));
    assert_eq!(settings.usage.staleness, seconds(180));
    assert_eq!(settings.node_selector, None);
    assert_eq!(settings.serving.address.to_string(), "0.0.0.0:443");
    assert_eq!(settings.serving.in_flight, 400);
    assert_eq!(settings.serving.request_timeout, seconds(60));
    assert_eq!(settings.serving.streams, None);
    assert_eq!(settings.authentication.token_ttl, seconds(10));
    assert_eq!(settings.authorization.allowed_ttl, seconds(10));
    assert_eq!(settings.authorization.denied_ttl, seconds(10));
}

/// It was 10 s whatever the resolution, and a short resolution was rejected.
#[test]
fn the_timeout_follows_a_short_resolution() {
    for (flags, timeout) in [
        (&["--metric-resolution=5s"][..], Duration::from_millis(4500)),
        (&["--metric-resolution=1s"], Duration::from_millis(900)),
        (&["--metric-resolution=11s"], Duration::from_millis(9900)),
        (&["--metric-resolution=15s"], seconds(10)),
        (&["--metric-resolution=10m"], seconds(10)),
        (
            &["--metric-resolution=15s", "--kubelet-request-timeout=13s"],
            seconds(13),
        ),
    ] {
        assert_eq!(settings(flags).kubelet_timeout, timeout, "{flags:?}");
    }
}

#[test]
fn flags_of_caches_and_staleness_reach_the_settings() {
    let settings = settings(&[
        "--metric-resolution=5s",
        "--staleness=7s",
        "--authentication-token-webhook-cache-ttl=1s",
        "--authorization-webhook-cache-authorized-ttl=2s",
        "--authorization-webhook-cache-unauthorized-ttl=3s",
        "--requestheader-uid-headers=x-uid,x-other",
        "--requestheader-extra-headers-prefix=x-extra-",
    ]);
    assert_eq!(settings.usage.staleness, seconds(7));
    assert_eq!(settings.authentication.token_ttl, seconds(1));
    assert_eq!(settings.authorization.allowed_ttl, seconds(2));
    assert_eq!(settings.authorization.denied_ttl, seconds(3));
    let headers = settings.authentication.headers;
    assert_eq!(headers.uid, ["x-uid", "x-other"]);
    assert_eq!(headers.extra_prefix, ["x-extra-"]);
}
