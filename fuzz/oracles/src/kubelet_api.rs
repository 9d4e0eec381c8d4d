//! Requests to the kubelet server, and frames of WebSocket.

use bytes::BytesMut;
use http::Method;
use kubevitals_http::query::Query;
use kubevitals_kubelet_api::options::{command, log_options, ports, run_command, stream_options};
use kubevitals_kubelet_api::provider::{ContainerTarget, PodTarget};
use kubevitals_kubelet_api::route::{Route, path_label, permissions_of_unknown};
use kubevitals_kubelet_api::streaming::websocket::{Decoder, Event, Kind, MAX_MESSAGE};
use kubevitals_model::Timestamp;

/// Tokens of requests.
pub(crate) const REQUEST_TOKENS: &[&[u8]] = &[
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

/// Heads of frames.
pub(crate) const WEBSOCKET_TOKENS: &[&[u8]] = &[
    b"\x82\x81\x00\x00\x00\x00",
    b"\x02\x82\x01\x02\x03\x04",
    b"\x80\x80\x00\x00\x00\x00",
    b"\x00\x80\x00\x00\x00\x00",
    b"\x81\xfe\x00\x80\x00\x00\x00\x00",
    b"\x82\xff\x00\x00\x00\x00\x02\x00\x00\x00",
    b"\x89\x80\x00\x00\x00\x00",
    b"\x8a\x81\x00\x00\x00\x00\x61",
    b"\x88\x82\x00\x00\x00\x00\x03\xe8",
    b"\xff\x00",
];

/// What was read of a message: its type, its bytes, and whether it is whole.
type Message = (Kind, Vec<u8>, bool);

/// No bytes make the decoder panic, how they are cut does not matter, and messages begin once, end
/// at most once and are within their limit.
///
/// # Panics
///
/// If the property is violated.
pub fn websocket_frames(bytes: &[u8]) {
    let whole = decode(bytes, bytes.len().max(1));
    for length in [1, 5] {
        assert_eq!(decode(bytes, length), whole, "cut into pieces of {length}");
    }
}

/// The messages and the other events of pieces of this length, and the fault that ended them.
fn decode(bytes: &[u8], length: usize) -> (Vec<Message>, Vec<Event>, Option<String>) {
    let mut decoder = Decoder::default();
    let mut buffer = BytesMut::new();
    let (mut messages, mut others): (Vec<Message>, _) = (Vec::new(), Vec::new());
    for piece in bytes.chunks(length) {
        buffer.extend_from_slice(piece);
        loop {
            match decoder.decode(&mut buffer) {
                Ok(None) => break,
                Err(fault) => return (messages, others, Some(fault.to_string())),
                Ok(Some(Event::Data {
                    kind,
                    bytes,
                    is_first,
                    is_last,
                })) => {
                    if is_first {
                        messages.push((kind, Vec::new(), false));
                    }
                    let (own, message, is_whole) =
                        messages.last_mut().expect("a message has begun");
                    assert_eq!((*own, *is_whole), (kind, false));
                    message.extend_from_slice(&bytes);
                    *is_whole = is_last;
                    assert!(u64::try_from(message.len()).is_ok_and(|len| len <= MAX_MESSAGE));
                }
                Ok(Some(other)) => others.push(other),
            }
        }
    }
    (messages, others, None)
}
