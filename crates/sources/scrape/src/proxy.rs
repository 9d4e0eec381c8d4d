//! Connections to kubelets through an HTTP proxy, for `--kubelet-use-proxy`.

use std::fmt;
use std::io;

use kubevitals_model::ProxyRules;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::error::excerpt;

/// The response of a proxy to `CONNECT` has a few headers at most.
const MAX_HEAD: usize = 8 << 10;

/// The proxy for kubelets, and the kubelets that it is not for.
#[derive(Clone)]
pub struct KubeletProxy {
    pub host: String,
    pub port: u16,
    /// The value of `Proxy-Authorization`.
    pub authorization: Option<String>,
    /// Decides by the address of a kubelet whether the proxy is used.
    pub rules: ProxyRules,
}

impl KubeletProxy {
    /// Returns whether a kubelet is reached through the proxy.
    pub(crate) fn is_for(&self, host: &str, port: u16) -> bool {
        self.rules.proxy_for(true, host, port).is_some()
    }

    /// Opens a tunnel to `target`, a host and port, on a new connection to the proxy.
    pub(crate) async fn tunnel(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        target: &str,
    ) -> io::Result<()> {
        let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
        if let Some(authorization) = &self.authorization {
            for part in ["Proxy-Authorization: ", authorization, "\r\n"] {
                request.push_str(part);
            }
        }
        request.push_str("\r\n");
        stream.write_all(request.as_bytes()).await?;
        // Byte by byte: what follows the head belongs to the kubelet.
        let mut head = Vec::with_capacity(128);
        while !head.ends_with(b"\r\n\r\n") {
            if head.len() == MAX_HEAD {
                return Err(refused(b"a head that does not end"));
            }
            head.push(stream.read_u8().await?);
        }
        let status = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let code = status.split(|byte| *byte == b' ').nth(1);
        if code.is_some_and(|code| matches!(code, [b'2', _, _])) {
            return Ok(());
        }
        Err(refused(status))
    }
}

fn refused(status: &[u8]) -> io::Error {
    io::Error::other(format!("the proxy refused: {}", excerpt(status)))
}

/// Without the password.
impl fmt::Debug for KubeletProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeletProxy")
            .field("host", &self.host)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy() -> KubeletProxy {
        KubeletProxy {
            host: "proxy.test".to_owned(),
            port: 3128,
            authorization: Some("Basic dXNlcjpzZWNyZXQ=".to_owned()),
            rules: ProxyRules::from_env(|name| match name {
                "HTTPS_PROXY" => Some("proxy.test:3128".to_owned()),
                "NO_PROXY" => Some("10.0.0.0/8".to_owned()),
                _ => None,
            }),
        }
    }

    /// Opens a tunnel through a proxy with this response, and returns what follows the response.
    async fn tunnel(response: &[u8]) -> io::Result<(String, u8)> {
        let (mut near, mut far) = tokio::io::duplex(64 << 10);
        far.write_all(response).await?;
        proxy().tunnel(&mut near, "10.0.0.1:10250").await?;
        let next = near.read_u8().await?;
        drop(near);
        let mut request = String::new();
        far.read_to_string(&mut request).await?;
        Ok((request, next))
    }

    #[tokio::test]
    async fn a_tunnel_begins_after_the_head_of_the_proxy() {
        let response = b"HTTP/1.0 200 Connection established\r\nVia: proxy\r\n\r\nkubelet";
        let (request, next) = tunnel(response).await.unwrap();
        assert_eq!(
            request,
            "CONNECT 10.0.0.1:10250 HTTP/1.1\r\nHost: 10.0.0.1:10250\r\n\
             Proxy-Authorization: Basic dXNlcjpzZWNyZXQ=\r\n\r\n"
        );
        assert_eq!(next, b'k');
    }

    #[tokio::test]
    async fn a_refused_or_endless_response_is_an_error() {
        let refused = tunnel(b"HTTP/1.1 407 Authenticate\r\n\r\n")
            .await
            .unwrap_err();
        let text = "the proxy refused: HTTP/1.1 407 Authenticate";
        assert_eq!(refused.to_string(), text);
        tunnel(b"nothing\r\n\r\n").await.unwrap_err();
        tunnel(&vec![b'x'; MAX_HEAD + 1]).await.unwrap_err();
    }

    #[test]
    fn kubelets_in_no_proxy_are_reached_directly_and_passwords_are_not_printed() {
        let proxy = proxy();
        assert!(proxy.is_for("192.0.2.1", 10250));
        assert!(!proxy.is_for("10.0.0.1", 10250));
        assert!(!format!("{proxy:?}").contains("dXNlcjpzZWNyZXQ"));
    }
}
