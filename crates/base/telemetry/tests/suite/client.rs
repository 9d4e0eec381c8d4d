//! A minimal HTTP/1.1 client.

use std::{fmt::Write, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::timeout,
};

/// Only a hang takes that long.
const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self {
            stream: BufReader::new(TcpStream::connect(address).await.unwrap()),
        }
    }

    pub(crate) async fn write(&mut self, bytes: &str) {
        self.stream
            .get_mut()
            .write_all(bytes.as_bytes())
            .await
            .unwrap();
    }

    pub(crate) async fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response {
        let mut request = format!("{method} {path} HTTP/1.1\r\nHost: test\r\n");
        for (name, value) in headers {
            let _ = write!(request, "{name}: {value}\r\n");
        }
        if !body.is_empty() {
            let _ = write!(request, "Content-Length: {}\r\n", body.len());
        }
        self.write(&format!("{request}\r\n{body}")).await;
        self.read_response(method != "HEAD").await
    }

    pub(crate) async fn read_response(&mut self, with_body: bool) -> Response {
        timeout(DEADLINE, self.read(with_body)).await.unwrap()
    }

    async fn read(&mut self, with_body: bool) -> Response {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).await.unwrap();
            match line.trim_end() {
                "" => break,
                text => lines.push(text.to_owned()),
            }
        }
        let status = lines[0].split(' ').nth(1).unwrap().parse().unwrap();
        let headers: Vec<(String, String)> = lines[1..]
            .iter()
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let mut response = Response {
            status,
            headers,
            body: String::new(),
        };
        if with_body {
            let length = response.header("content-length").unwrap().parse().unwrap();
            let mut body = vec![0; length];
            self.stream.read_exact(&mut body).await.unwrap();
            response.body = String::from_utf8_lossy(&body).into_owned();
        }
        response
    }

    /// Waits until the server closes the connection and returns the bytes received before.
    pub(crate) async fn closed(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        // A reset counts as closed.
        let _ = timeout(DEADLINE, self.stream.read_to_end(&mut rest))
            .await
            .unwrap();
        rest
    }
}
