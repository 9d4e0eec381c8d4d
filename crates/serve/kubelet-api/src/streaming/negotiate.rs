//! Which protocol a client and this server speak, and the response that says so.

use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_TYPE, RETRY_AFTER, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version};

use super::status::{self, StatusFormat};
use super::websocket;

/// The protocols that a client of SPDY offers, and the one that is chosen.
const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
/// The protocols of the server, if none matches.
const ACCEPTED_PROTOCOLS: HeaderName =
    HeaderName::from_static("x-accepted-stream-protocol-versions");

const SPDY: &str = "SPDY/3.1";
const WEBSOCKET: &str = "websocket";

const EXEC_SPDY: [(&str, SpdyProtocol); 5] = [
    (
        "v5.channel.k8s.io",
        SpdyProtocol::new(true, StatusFormat::Json),
    ),
    (
        "v4.channel.k8s.io",
        SpdyProtocol::new(true, StatusFormat::Json),
    ),
    (
        "v3.channel.k8s.io",
        SpdyProtocol::new(true, StatusFormat::Text),
    ),
    (
        "v2.channel.k8s.io",
        SpdyProtocol::new(false, StatusFormat::Text),
    ),
    (
        "channel.k8s.io",
        SpdyProtocol::new(false, StatusFormat::Text),
    ),
];
const EXEC_WEBSOCKET: [(&str, ChannelProtocol); 5] = {
    use Encoding::{Base64, Binary};
    [
        (
            "v5.channel.k8s.io",
            ChannelProtocol::new(Binary, true, StatusFormat::Json),
        ),
        (
            "v4.channel.k8s.io",
            ChannelProtocol::new(Binary, false, StatusFormat::Json),
        ),
        (
            "v4.base64.channel.k8s.io",
            ChannelProtocol::new(Base64, false, StatusFormat::Json),
        ),
        (
            "channel.k8s.io",
            ChannelProtocol::new(Binary, false, StatusFormat::Text),
        ),
        (
            "base64.channel.k8s.io",
            ChannelProtocol::new(Base64, false, StatusFormat::Text),
        ),
    ]
};
const FORWARD_SPDY: [(&str, ()); 1] = [("portforward.k8s.io", ())];
const FORWARD_WEBSOCKET: [(&str, Forward); 3] = [
    ("SPDY/3.1+portforward.k8s.io", Forward::Tunnel),
    ("v4.channel.k8s.io", Forward::Channels(Encoding::Binary)),
    (
        "v4.base64.channel.k8s.io",
        Forward::Channels(Encoding::Base64),
    ),
];

/// The subresource of a request, as metrics name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subresource {
    Exec,
    Attach,
    PortForward,
}

/// The agreed protocol, and the response 101.
#[derive(Debug)]
pub(super) enum Upgrade<W, S> {
    WebSocket {
        response: Response<Bytes>,
        protocol: W,
    },
    Spdy {
        response: Response<Bytes>,
        protocol: S,
    },
}

/// A version of exec over SPDY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SpdyProtocol {
    pub(super) has_resize: bool,
    pub(super) status: StatusFormat,
}

/// A version of exec over channels of WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChannelProtocol {
    pub(super) encoding: Encoding,
    /// Whether a client can close a channel.
    pub(super) has_close: bool,
    pub(super) status: StatusFormat,
}

/// How a channel is encoded in messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    /// The number of the channel in a byte, then data.
    Binary,
    /// The number of the channel as a digit, then data in base64; text messages.
    Base64,
}

/// A version of port-forward over WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Forward {
    /// SPDY in binary messages.
    Tunnel,
    /// Two channels for each port.
    Channels(Encoding),
}

/// Why a connection is not upgraded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rejection {
    code: StatusCode,
    message: String,
    headers: Box<HeaderMap>,
}

impl Subresource {
    /// That of exec and attach, by the path.
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        if request.uri().path().starts_with("/attach") {
            Self::Attach
        } else {
            Self::Exec
        }
    }

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Attach => "attach",
            Self::PortForward => "portforward",
        }
    }
}

impl SpdyProtocol {
    const fn new(has_resize: bool, status: StatusFormat) -> Self {
        Self { has_resize, status }
    }
}

impl ChannelProtocol {
    const fn new(encoding: Encoding, has_close: bool, status: StatusFormat) -> Self {
        Self {
            encoding,
            has_close,
            status,
        }
    }
}

impl Rejection {
    pub(super) fn new(code: StatusCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            headers: Box::default(),
        }
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// The protocols of a client are not ours.
    fn no_match(offered: &[&str]) -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            format!("unable to upgrade: none of the protocols {offered:?} is supported"),
        )
    }

    /// The response, with a `metav1.Status` that the API server passes on.
    pub(super) fn into_response(self) -> Response<Bytes> {
        let reason = match self.code {
            StatusCode::FORBIDDEN => "Forbidden",
            StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
            StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
            _ => "BadRequest",
        };
        let body = status::response_body(&self.message, reason, self.code.as_u16());
        let mut response = Response::new(body);
        *response.status_mut() = self.code;
        *response.headers_mut() = *self.headers;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if self.code == StatusCode::TOO_MANY_REQUESTS {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// Chooses the protocol of an exec or attach.
pub(super) fn remote_command<B>(
    request: &Request<B>,
) -> Result<Upgrade<ChannelProtocol, SpdyProtocol>, Rejection> {
    // Old clients name no protocol.
    let unnamed = ChannelProtocol::new(Encoding::Binary, false, StatusFormat::Text);
    negotiate(request, &EXEC_WEBSOCKET, unnamed, &EXEC_SPDY)
}

/// Chooses the protocol of a port-forward.
pub(super) fn port_forward<B>(request: &Request<B>) -> Result<Upgrade<Forward, ()>, Rejection> {
    let unnamed = Forward::Channels(Encoding::Binary);
    negotiate(request, &FORWARD_WEBSOCKET, unnamed, &FORWARD_SPDY)
}

fn negotiate<B, W: Copy, S: Copy>(
    request: &Request<B>,
    websocket: &[(&'static str, W)],
    unnamed: W,
    spdy: &[(&'static str, S)],
) -> Result<Upgrade<W, S>, Rejection> {
    let headers = request.headers();
    let wants = |protocol: &str| {
        list(headers, &UPGRADE).any(|offered| offered.eq_ignore_ascii_case(protocol))
    };
    let is_upgrade =
        list(headers, &CONNECTION).any(|option| option.eq_ignore_ascii_case("upgrade"));
    if request.version() != Version::HTTP_11 || !is_upgrade {
        return Err(Rejection::bad_request(
            "unable to upgrade: missing upgrade headers in request",
        ));
    }
    if wants(WEBSOCKET) {
        websocket_upgrade(request, websocket, unnamed)
    } else if wants(SPDY) {
        spdy_upgrade(headers, spdy)
    } else {
        Err(Rejection::bad_request(format!(
            "unable to upgrade: the protocol must be {WEBSOCKET} or {SPDY}"
        )))
    }
}

fn websocket_upgrade<B, W: Copy, S>(
    request: &Request<B>,
    protocols: &[(&'static str, W)],
    unnamed: W,
) -> Result<Upgrade<W, S>, Rejection> {
    let headers = request.headers();
    if request.method() != Method::GET {
        return Err(Rejection::bad_request(
            "unable to upgrade: not a GET request",
        ));
    }
    if headers
        .get(SEC_WEBSOCKET_VERSION)
        .map(HeaderValue::as_bytes)
        != Some(b"13")
    {
        let mut rejection =
            Rejection::bad_request("unable to upgrade: WebSocket version is not 13");
        let version = HeaderValue::from_static("13");
        rejection.headers.insert(SEC_WEBSOCKET_VERSION, version);
        return Err(rejection);
    }
    let accept = headers
        .get(SEC_WEBSOCKET_KEY)
        .and_then(|key| websocket::accept_key(key.as_bytes()))
        .and_then(|accept| HeaderValue::try_from(accept).ok())
        .ok_or_else(|| Rejection::bad_request("unable to upgrade: bad Sec-WebSocket-Key"))?;
    let offered: Vec<_> = list(headers, &SEC_WEBSOCKET_PROTOCOL).collect();
    let (name, protocol) = match choose(&offered, protocols) {
        Some((name, protocol)) => (Some(name), protocol),
        None if offered.is_empty() => (None, unnamed),
        None => return Err(Rejection::no_match(&offered)),
    };
    let mut response = switching_protocols(WEBSOCKET);
    let headers = response.headers_mut();
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    if let Some(name) = name {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(name));
    }
    Ok(Upgrade::WebSocket { response, protocol })
}

fn spdy_upgrade<W, S: Copy>(
    headers: &HeaderMap,
    protocols: &[(&'static str, S)],
) -> Result<Upgrade<W, S>, Rejection> {
    let offered: Vec<_> = list(headers, &STREAM_PROTOCOL).collect();
    if offered.is_empty() {
        return Err(Rejection::bad_request(
            "unable to upgrade: X-Stream-Protocol-Version is required",
        ));
    }
    let Some((name, protocol)) = choose(&offered, protocols) else {
        let mut rejection = Rejection::no_match(&offered);
        for (name, _) in protocols {
            let name = HeaderValue::from_static(name);
            rejection.headers.append(ACCEPTED_PROTOCOLS, name);
        }
        return Err(rejection);
    };
    let mut response = switching_protocols(SPDY);
    // Without it kubectl assumes the first version, and loses exit codes.
    let name = HeaderValue::from_static(name);
    response.headers_mut().insert(STREAM_PROTOCOL, name);
    Ok(Upgrade::Spdy { response, protocol })
}

/// The first protocol of the client that this server has.
fn choose<T: Copy>(offered: &[&str], protocols: &[(&'static str, T)]) -> Option<(&'static str, T)> {
    let find = |name: &&str| protocols.iter().find(|(own, _)| own == name).copied();
    offered.iter().find_map(find)
}

fn switching_protocols(protocol: &'static str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(protocol));
    response
}

/// The values of a header that may be repeated, and have several values each.
fn list<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers
        .get_all(name)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(headers: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::builder().uri("/exec/a/b/c");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    fn spdy(protocols: &[&str]) -> Request<()> {
        let mut headers = vec![("connection", "Upgrade"), ("upgrade", "spdy/3.1")];
        headers.extend(
            protocols
                .iter()
                .map(|name| ("x-stream-protocol-version", *name)),
        );
        request(&headers)
    }

    fn websocket(protocols: &str) -> Request<()> {
        request(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-protocol", protocols),
        ])
    }

    fn rejected(request: &Request<()>) -> Response<Bytes> {
        remote_command(request).unwrap_err().into_response()
    }

    #[test]
    fn the_first_protocol_of_the_client_is_echoed() {
        for (offered, chosen, has_resize, format) in [
            (
                &["v5.channel.k8s.io,v4.channel.k8s.io"][..],
                "v5.channel.k8s.io",
                true,
                StatusFormat::Json,
            ),
            (
                &["x", "v4.channel.k8s.io", "channel.k8s.io"],
                "v4.channel.k8s.io",
                true,
                StatusFormat::Json,
            ),
            (
                &["v3.channel.k8s.io"],
                "v3.channel.k8s.io",
                true,
                StatusFormat::Text,
            ),
            (
                &["channel.k8s.io", "v4.channel.k8s.io"],
                "channel.k8s.io",
                false,
                StatusFormat::Text,
            ),
        ] {
            let Ok(Upgrade::Spdy { response, protocol }) = remote_command(&spdy(offered)) else {
                panic!("{offered:?}");
            };
            assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
            assert_eq!(response.headers()[UPGRADE], "SPDY/3.1");
            assert_eq!(response.headers()[STREAM_PROTOCOL], chosen);
            assert_eq!(protocol, SpdyProtocol::new(has_resize, format));
        }
        for (offered, chosen) in [("v5.channel.k8s.io", Some("v5.channel.k8s.io")), ("", None)] {
            let Ok(Upgrade::WebSocket { response, .. }) = remote_command(&websocket(offered))
            else {
                panic!("{offered}");
            };
            assert_eq!(
                response.headers()[SEC_WEBSOCKET_ACCEPT],
                "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
            );
            let echoed = response.headers().get(SEC_WEBSOCKET_PROTOCOL);
            assert_eq!(echoed.map(|name| name.to_str().unwrap()), chosen);
        }
    }

    #[test]
    fn what_cannot_be_upgraded_is_rejected() {
        assert_eq!(rejected(&request(&[])).status(), 400);
        assert_eq!(rejected(&spdy(&[])).status(), 400);
        let other = rejected(&spdy(&["v9.channel.k8s.io"]));
        assert_eq!(other.status(), 403);
        assert_eq!(
            other.headers().get_all(ACCEPTED_PROTOCOLS).iter().count(),
            5
        );
        assert_eq!(rejected(&websocket("v9.channel.k8s.io")).status(), 403);
        let h2c = request(&[("connection", "upgrade"), ("upgrade", "h2c")]);
        assert_eq!(rejected(&h2c).status(), 400);
        for (name, value) in [
            ("sec-websocket-version", "8"),
            ("sec-websocket-key", "short"),
        ] {
            let mut request = websocket("v5.channel.k8s.io");
            request.headers_mut().insert(name, value.parse().unwrap());
            assert_eq!(rejected(&request).status(), 400, "{name}");
        }
        let mut post = websocket("v5.channel.k8s.io");
        *post.method_mut() = Method::POST;
        assert_eq!(rejected(&post).status(), 400);
        let mut http2 = spdy(&["v4.channel.k8s.io"]);
        *http2.version_mut() = Version::HTTP_2;
        assert_eq!(rejected(&http2).status(), 400);
    }
}
