//! A fake of the servers that give out tokens: the metadata server of a machine, the OAuth 2 token
//! endpoint, the exchange of federated tokens, and impersonation.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use http::request::Parts;
use parking_lot::Mutex;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::serve::{self, Answer, Service};

/// A request that was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityRequest {
    pub path: String,
    pub authorization: Option<String>,
    pub body: String,
}

/// A running fake. It ends when it is dropped.
///
/// | path | answer |
/// |---|---|
/// | `/computeMetadata/v1/…` | the value that was set; a token from the default service account |
/// | `/token` | a token |
/// | `/sts` | a federated token |
/// | `/impersonate` | a token of another account |
/// | `/subject` | `{"id_token": "subject"}` |
#[derive(Debug)]
pub struct GoogleIdentity {
    pub address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct State {
    values: Mutex<BTreeMap<String, String>>,
    requests: Mutex<Vec<IdentityRequest>>,
    /// The number of tokens given out, which they are named after.
    tokens: Mutex<u64>,
    lifetime: Mutex<u64>,
    /// The status of answers to all requests of tokens.
    status: Mutex<u16>,
}

impl GoogleIdentity {
    /// Listens on a free port of the loopback, as a node of a cluster.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        let address = listener.local_addr()?;
        let values = [
            ("project/project-id", "sim-project"),
            ("instance/attributes/cluster-name", "sim-cluster"),
            ("instance/attributes/cluster-location", "europe-west1"),
            (
                "instance/service-accounts/default/email",
                "prober@sim-project.iam.gserviceaccount.com",
            ),
        ];
        let values = values.map(|(path, value)| (path.to_owned(), value.to_owned()));
        let state = Arc::new(State {
            values: Mutex::new(BTreeMap::from(values)),
            requests: Mutex::default(),
            tokens: Mutex::default(),
            lifetime: Mutex::new(3_600),
            status: Mutex::new(200),
        });
        let task = tokio::spawn(serve::serve(listener, None, Arc::clone(&state)));
        Ok(Self {
            address,
            state,
            task,
        })
    }

    /// Sets a value of the metadata server; `None` removes it.
    pub fn set(&self, path: &str, value: Option<&str>) {
        let mut values = self.state.values.lock();
        match value {
            Some(value) => values.insert(path.to_owned(), value.to_owned()),
            None => values.remove(path),
        };
    }

    /// Sets the lifetime of the next tokens, in seconds.
    pub fn set_lifetime(&self, seconds: u64) {
        *self.state.lifetime.lock() = seconds;
    }

    /// Answers requests of tokens with this status; 200 gives them out.
    pub fn set_status(&self, status: u16) {
        *self.state.status.lock() = status;
    }

    /// The number of tokens given out; the last is `token-N`.
    pub fn tokens(&self) -> u64 {
        *self.state.tokens.lock()
    }

    pub fn requests(&self) -> Vec<IdentityRequest> {
        self.state.requests.lock().clone()
    }
}

impl Drop for GoogleIdentity {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Service for State {
    async fn answer(&self, head: Parts, body: Bytes) -> Option<Answer> {
        let path = head.uri.path().to_owned();
        let header = head.headers.get("authorization");
        self.requests.lock().push(IdentityRequest {
            path: path.clone(),
            authorization: header.and_then(|value| Some(value.to_str().ok()?.to_owned())),
            body: String::from_utf8_lossy(&body).into_owned(),
        });
        if let Some(path) = path.strip_prefix("/computeMetadata/v1/") {
            let flavor = HeaderValue::from_static("Google");
            if head.headers.get("metadata-flavor") != Some(&flavor) {
                return Some(serve::text(403, "Missing Metadata-Flavor".to_owned()));
            }
            let mut answer = if path == "instance/service-accounts/default/token" {
                self.token("token")
            } else {
                match self.values.lock().get(path) {
                    Some(value) => serve::text(200, value.clone()),
                    None => serve::text(404, "not found".to_owned()),
                }
            };
            answer.headers_mut().insert("metadata-flavor", flavor);
            return Some(answer);
        }
        Some(match path.as_str() {
            "/token" => self.token("token"),
            "/sts" => self.token("federated"),
            "/impersonate" => {
                let token = json!({"accessToken": "impersonated", "expireTime": ""});
                serve::json(200, &token)
            }
            "/subject" => serve::json(200, &json!({"id_token": "subject"})),
            _ => serve::text(404, "not found".to_owned()),
        })
    }
}

impl State {
    fn token(&self, name: &str) -> Answer {
        let status = *self.status.lock();
        if status != 200 {
            return serve::json(status, &json!({"error": "invalid_grant"}));
        }
        let mut tokens = self.tokens.lock();
        *tokens += 1;
        let token = format!("{name}-{tokens}");
        let lifetime = *self.lifetime.lock();
        let body = json!({"access_token": token, "expires_in": lifetime, "token_type": "Bearer"});
        serve::json(200, &body)
    }
}
