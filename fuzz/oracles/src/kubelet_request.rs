//! Requests to the kubelet server.

use http::Method;
use kubevitals_http::query::Query;
use kubevitals_kubelet_api::options::{command, log_options, ports, run_command, stream_options};
use kubevitals_kubelet_api::provider::{ContainerTarget, PodTarget};
use kubevitals_kubelet_api::route::{Route, path_label, permissions_of_unknown};
use kubevitals_model::Timestamp;

/// Tokens of requests.
pub(crate) const TOKENS: &[&[u8]] = &[
    b"/containerLogs/",
    b"/exec/",
    b"/attach/",
    b"/run/",
    b"/portForward/",
    b"/metrics/",
    b"resource",
    b"/stats/summary",
    b"/healthz/",
    b"%2e%2e",
    b"%2F",
    b"%00",
    b"..",
    b"//",
    b"?",
    b"&tailLines=",
    b"&tail=all",
    b"&sinceSeconds=",
    b"&sinceTime=2026-11-15T20:11:21Z",
    b"&limitBytes=",
    b"&follow=true",
    b"&stream=Stderr",
    b"&command=",
    b"&port=80,",
    b"&input=1&tty=1",
    b"-1",
    b"9223372036854775807",
];

/// Parses a path and a query.
///
/// # Panics
///
/// If a name could leave its folder, a session could be opened without `create`, or an option is
/// out of its range.
pub fn kubelet_request(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    let route = Route::parse(path);
    for method in [Method::GET, Method::POST, Method::TRACE] {
        let permissions = match &route {
            Some(route) => route.permissions(&method),
            None => permissions_of_unknown(path, &method),
        };
        assert!(
            !permissions.is_empty(),
            "{path:?} would be denied for no reason"
        );
        let is_session = matches!(
            route,
            Some(Route::Exec(_) | Route::Attach(_) | Route::Run(_) | Route::PortForward(_))
        );
        assert!(!is_session || permissions.iter().all(|one| one.verb == "create"));
    }
    match &route {
        Some(
            Route::ContainerLogs(target)
            | Route::Exec(target)
            | Route::Attach(target)
            | Route::Run(target),
        ) => check_container(target),
        Some(Route::PortForward(target)) => check_pod(target),
        _ => {}
    }
    assert!(route.is_none() || path_label(path) != "other", "{path:?}");

    let query = Query::new(Some(query));
    let now = Timestamp::from_unix_millis(1_794_773_483_261);
    if let Ok(options) = log_options(query, now) {
        let max = u64::try_from(i64::MAX).unwrap_or(u64::MAX);
        assert!(options.tail_lines.is_none_or(|lines| lines <= max));
        assert!(
            options
                .limit_bytes
                .is_none_or(|bytes| (1..=max).contains(&bytes))
        );
    }
    if let Ok(streams) = stream_options(query) {
        assert!(streams.stdin || streams.stdout || streams.stderr);
        assert!(!streams.tty || !streams.stderr);
    }
    if let Ok(command) = command(query) {
        assert!(command.first().is_some_and(|program| !program.is_empty()));
    }
    if let Ok(command) = run_command(query) {
        assert!(command.iter().all(|word| !word.is_empty()) && !command.is_empty());
    }
    if let Ok(ports) = ports(query) {
        assert!(ports.len() <= 256 && !ports.contains(&0));
    }
}

fn check_container(target: &ContainerTarget) {
    check_pod(&target.pod);
    check_name(&target.container);
}

fn check_pod(target: &PodTarget) {
    check_name(target.key.namespace());
    check_name(target.key.name());
    if let Some(uid) = &target.uid {
        check_name(&uid.to_string());
    }
}

/// Providers make file names of it.
fn check_name(name: &str) {
    assert!(!name.is_empty() && name.len() <= 253, "{name:?}");
    assert!(!name.starts_with('.') && !name.contains(".."), "{name:?}");
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    assert!(name.bytes().all(is_part), "{name:?}");
}
