//! Starting and controlling a simulated API server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kubevitals_tls::{Alpn, RequestClientCertificate, ServerOptions, ServerTls};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::bootstrap::{self, FRONT_PROXY};
use super::context::{ApiContext, ContextParts};
use super::{
    History, IssuedCertificate, RequestFault, Rule, SimApiConfig, SimError, User, resources, server,
};
use crate::aggregator::Aggregator;
use crate::auth::MASTERS;
use crate::auth::authority::Authority;
use crate::auth::authorize::Authorizer;
use crate::objects::{ObjectWriter, PodLogs, Resource};
use crate::store::{Query, Store, join_key, system_time};

/// Backlog of the listener, the same as the default of the standard library.
const BACKLOG: u32 = 1024;

/// Starts simulated API servers.
#[derive(Debug)]
pub struct SimApi;

/// A running simulated API server. Dropping it stops the server without waiting.
pub struct SimApiHandle {
    context: Arc<ApiContext>,
    acceptor: TlsAcceptor,
    cluster: Authority,
    front_proxy: Authority,
    admin: IssuedCertificate,
    rules: Mutex<Vec<Rule>>,
    prober: JoinHandle<()>,
    listening: Option<Listening>,
    /// Holds the port while the server is stopped, so that no other socket gets it.
    reserved: Option<TcpSocket>,
}

/// The part that is replaced by a restart.
struct Listening {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl SimApi {
    /// Starts a server with its own certificate authorities and the objects that every cluster has.
    pub async fn start(config: SimApiConfig) -> Result<SimApiHandle, SimError> {
        let listener = listen(config.address).await?;
        let address = listener.local_addr().map_err(|source| SimError::Listen {
            address: config.address,
            source,
        })?;
        let now = system_time(config.clock.now());
        let cluster = Authority::new("kubernetes", now)?;
        let front_proxy = Authority::new("front-proxy-ca", now)?;
        let serving = cluster.server("kube-apiserver", &serving_names(&config, address))?;
        let tls = ServerTls::new(
            serving.load("serving certificate", now)?,
            &ServerOptions {
                alpn: vec![Alpn::H2, Alpn::Http11],
                client_verifier: Some(RequestClientCertificate::verifier()),
                ..ServerOptions::default()
            },
        )?;
        let store = Arc::new(Store::new(config.history, config.clock, config.seed));
        bootstrap::fill(&store, address, &cluster, &front_proxy)?;
        let identity = front_proxy
            .client(FRONT_PROXY, &[])?
            .load("front-proxy certificate", now)?;
        let context = Arc::new(ApiContext::new(ContextParts {
            aggregator: Aggregator::new(Arc::clone(&store), identity),
            store,
            authorizer: Authorizer::new(&config.rules),
            users: cluster.client_verifier()?,
            bookmark_interval: config.bookmark_interval.max(Duration::from_millis(1)),
            graceful_pod_deletion: config.graceful_pod_deletion,
            address,
        }));
        for (token, user) in config.tokens {
            context.tokens.add(token, user, None);
        }
        let admin = cluster.client("kubernetes-admin", &[MASTERS.to_owned()])?;
        let acceptor = TlsAcceptor::from(tls.config());
        let prober = {
            let context = Arc::clone(&context);
            let every = config.probe_interval.max(Duration::from_millis(1));
            tokio::spawn(async move { context.aggregator.run(every).await })
        };
        let mut handle = SimApiHandle {
            context,
            acceptor,
            cluster,
            front_proxy,
            admin,
            rules: Mutex::new(config.rules),
            prober,
            listening: None,
            reserved: None,
        };
        handle.serve(listener);
        Ok(handle)
    }
}

impl SimApiHandle {
    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.context.address
    }

    /// `https://127.0.0.1:…`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address())
    }

    /// The CA certificate of the cluster, as PEM.
    pub fn kube_ca_pem(&self) -> &str {
        self.cluster.pem()
    }

    /// The CA certificate of front proxies, as PEM.
    pub fn front_proxy_ca_pem(&self) -> &str {
        self.front_proxy.pem()
    }

    /// Returns a kubeconfig for an administrator, as YAML with embedded credentials.
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_for_certificate(&self.admin)
    }

    /// Returns a kubeconfig with a client certificate.
    pub fn kubeconfig_for_certificate(&self, user: &IssuedCertificate) -> String {
        self.kubeconfig_with(&format!(
            "    client-certificate-data: {}\n    client-key-data: {}\n",
            STANDARD.encode(&user.certificate),
            STANDARD.encode(&user.key),
        ))
    }

    /// Returns a kubeconfig with a bearer token.
    pub fn kubeconfig_for_token(&self, token: &str) -> String {
        self.kubeconfig_with(&format!("    token: {token:?}\n"))
    }

    /// Issues a client certificate for a user in at most one group.
    pub fn issue_client_certificate(
        &self,
        user: &str,
        group: Option<&str>,
    ) -> Result<IssuedCertificate, SimError> {
        let groups: Vec<String> = group.into_iter().map(str::to_owned).collect();
        self.cluster.client(user, &groups)
    }

    /// Issues a server certificate of the cluster's CA, for kubelets and extension API servers.
    pub fn issue_server_certificate(
        &self,
        common_name: &str,
        names: &[String],
    ) -> Result<IssuedCertificate, SimError> {
        self.cluster.server(common_name, names)
    }

    /// Issues a bearer token for a user; `None` for one that does not expire.
    pub fn issue_token(&self, user: User, validity: Option<Duration>) -> Result<String, SimError> {
        self.context
            .tokens
            .issue(user, self.context.store.now(), validity)
    }

    /// Adds an authorization rule.
    pub fn allow(&self, rule: Rule) {
        let mut rules = self.rules.lock();
        rules.push(rule);
        let authorizer = Authorizer::new(&rules);
        *self.context.authorizer.write() = authorizer;
    }

    /// Returns the cluster's CA, for kubelets.
    pub(crate) fn kubelet_authority(&self) -> Result<crate::kubelet::Authority, SimError> {
        self.cluster.for_kubelets()
    }

    pub(crate) fn context(&self) -> Arc<ApiContext> {
        Arc::clone(&self.context)
    }

    /// Returns the writer for simulated controllers and kubelets.
    pub fn writer(&self) -> Arc<dyn ObjectWriter> {
        Arc::clone(&self.context.store) as Arc<dyn ObjectWriter>
    }

    /// Sets the source of the text that `kubectl logs` shows.
    pub fn set_pod_logs(&self, logs: Arc<dyn PodLogs>) {
        *self.context.logs.write() = Some(logs);
    }

    /// Returns the current state of an object.
    pub fn object(&self, resource: Resource, namespace: Option<&str>, name: &str) -> Option<Value> {
        let key = join_key(namespace.unwrap_or_default(), name);
        let record = self.context.store.get(resource, &key)?;
        Some(record.value(resources::info(resource)))
    }

    /// Returns all objects of a resource, in list order.
    pub fn objects(&self, resource: Resource) -> Vec<Value> {
        let info = resources::info(resource);
        let page = self
            .context
            .store
            .snapshot(&Query::all(resource), None, None, 0);
        page.map(|page| {
            page.records
                .iter()
                .map(|record| record.value(info))
                .collect()
        })
        .unwrap_or_default()
    }

    /// Returns the number of objects of a resource.
    pub fn count(&self, resource: Resource) -> usize {
        self.context.store.count(resource)
    }

    /// Returns the resource version of the last write.
    pub fn resource_version(&self) -> u64 {
        self.context.store.version()
    }

    /// Adds a fault, which makes some requests fail or wait.
    pub fn inject(&self, fault: RequestFault) {
        self.context.faults.add(fault);
    }

    /// Removes all faults, and resumes bookmarks and streaming lists.
    pub fn clear_faults(&self) {
        self.context.faults.clear();
    }

    /// Stops or resumes bookmarks. The one that ends the initial events is always sent.
    pub fn freeze_bookmarks(&self, frozen: bool) {
        self.context.faults.freeze_bookmarks(frozen);
    }

    /// Rejects streaming lists, like servers without that feature, or accepts them again.
    pub fn reject_streaming_lists(&self, rejected: bool) {
        self.context.faults.reject_streaming_lists(rejected);
    }

    /// Sends a bookmark to every watch that requested bookmarks.
    pub fn send_bookmarks(&self) {
        self.context.bookmark_now.send_modify(|count| *count += 1);
    }

    /// Ends all watches, as a server does that ends them properly.
    pub fn drop_watches(&self) {
        self.context.drop_watches.send_modify(|count| *count += 1);
    }

    /// Returns the number of open watches.
    pub fn open_watches(&self) -> usize {
        // Each watch holds a receiver of this channel.
        self.context.drop_watches.receiver_count()
    }

    /// Compacts the watch history: watches and lists of earlier versions get 410.
    pub fn expire_history(&self) {
        self.context.store.compact();
    }

    /// Closes the listener and all connections. Objects are kept, and so is the port, which refuses
    /// connections.
    pub async fn stop(&mut self) {
        if let Some(Listening { stop, task }) = self.listening.take() {
            stop.send_replace(true);
            let _ended_or_aborted = task.await;
            // If this fails, resuming is still likely to get the port back.
            self.reserved = reserve(self.address()).ok();
        }
    }

    /// Listens again on the same address, after a [`stop`](Self::stop).
    pub async fn resume(&mut self) -> Result<(), SimError> {
        if self.listening.is_none() {
            let address = self.address();
            let listener = match self.reserved.take() {
                Some(socket) => socket
                    .listen(BACKLOG)
                    .map_err(|source| SimError::Listen { address, source })?,
                None => listen(address).await?,
            };
            self.serve(listener);
        }
        Ok(())
    }

    /// Stops the server and resumes it at once.
    pub async fn restart(&mut self, history: History) -> Result<(), SimError> {
        self.stop().await;
        if history == History::Lose {
            self.context.store.compact();
        }
        self.resume().await
    }

    /// Stops everything and waits until it has ended.
    pub async fn shutdown(mut self) {
        self.stop().await;
        self.prober.abort();
        let _aborted = (&mut self.prober).await;
        self.context.aggregator.shutdown().await;
        self.context.end_tasks().await;
    }

    fn serve(&mut self, listener: TcpListener) {
        let (stop, stopped) = watch::channel(false);
        let acceptor = self.acceptor.clone();
        let task = tokio::spawn(server::serve(
            listener,
            acceptor,
            Arc::clone(&self.context),
            stopped,
        ));
        self.listening = Some(Listening { stop, task });
    }

    fn kubeconfig_with(&self, credentials: &str) -> String {
        format!(
            "apiVersion: v1\n\
             kind: Config\n\
             clusters:\n\
             - name: sim\n  cluster:\n    server: {}\n    certificate-authority-data: {}\n\
             users:\n\
             - name: sim\n  user:\n{credentials}\
             contexts:\n\
             - name: sim\n  context:\n    cluster: sim\n    user: sim\n\
             current-context: sim\n",
            self.url(),
            STANDARD.encode(self.cluster.pem()),
        )
    }
}

impl Drop for SimApiHandle {
    fn drop(&mut self) {
        self.prober.abort();
        if let Some(listening) = &self.listening {
            listening.task.abort();
        }
    }
}

impl std::fmt::Debug for SimApiHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimApiHandle")
            .field("address", &self.address())
            .finish_non_exhaustive()
    }
}

/// Binds an address without listening, so that connections are refused.
fn reserve(address: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // Closed connections may linger in TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

async fn listen(address: SocketAddr) -> Result<TcpListener, SimError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| SimError::Listen { address, source })
}

fn serving_names(config: &SimApiConfig, address: SocketAddr) -> Vec<String> {
    let mut names: Vec<String> = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "localhost",
        "127.0.0.1",
        "::1",
        "10.96.0.1",
    ]
    .into_iter()
    .map(str::to_owned)
    .collect();
    names.push(address.ip().to_string());
    names.extend(config.names.iter().cloned());
    names.sort();
    names.dedup();
    names
}
