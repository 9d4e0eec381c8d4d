//! Starting a simulated API server, and everything that can be done with one that runs.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kubevitals_tls::{Alpn, RequestClientCertificate, ServerOptions, ServerTls};
use serde_json::Value;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::bootstrap::{self, FRONT_PROXY};
use super::shared::{Parts, Shared};
use super::{
    FaultId, History, IssuedCertificate, RequestFault, Rule, SimApiConfig, SimError, User, catalog,
    server,
};
use crate::aggregator::Aggregator;
use crate::auth::MASTERS;
use crate::auth::authority::Authority;
use crate::auth::authorize::Authorizer;
use crate::objects::{ObjectWriter, PodLogs, Resource};
use crate::store::{Query, Store, join_key};

/// Connections that wait to be accepted, as many as a listener has by default.
const BACKLOG: u32 = 1024;

/// Starts simulated API servers.
#[derive(Debug)]
pub struct SimApi;

/// A simulated API server that runs. Dropping it stops the server without waiting.
pub struct SimApiHandle {
    shared: Arc<Shared>,
    acceptor: TlsAcceptor,
    cluster: Authority,
    front_proxy: Authority,
    admin: IssuedCertificate,
    rules: Mutex<Vec<Rule>>,
    prober: JoinHandle<()>,
    listening: Option<Listening>,
    /// Holds the port while nobody listens, so that no other socket is given it meanwhile.
    reserved: Option<TcpSocket>,
}

/// The part that a restart replaces.
struct Listening {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl SimApi {
    /// Starts a server with its own certificate authorities, and fills it with what every cluster
    /// has.
    pub async fn start(config: SimApiConfig) -> Result<SimApiHandle, SimError> {
        let listener = listen(config.address).await?;
        let address = listener.local_addr().map_err(|source| SimError::Listen {
            address: config.address,
            source,
        })?;
        let now = (config.clock)();
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
        let shared = Arc::new(Shared::new(Parts {
            aggregator: Aggregator::new(Arc::clone(&store), identity),
            store,
            authorizer: Authorizer::new(&config.rules),
            users: cluster.judge()?,
            bookmark_interval: config.bookmark_interval.max(Duration::from_millis(1)),
            graceful_pod_deletion: config.graceful_pod_deletion,
            address,
        }));
        for (token, user) in config.tokens {
            shared.tokens.add(token, user, None);
        }
        let admin = cluster.client("kubernetes-admin", &[MASTERS.to_owned()])?;
        let acceptor = TlsAcceptor::from(tls.config());
        let prober = {
            let shared = Arc::clone(&shared);
            let every = config.probe_interval.max(Duration::from_millis(1));
            tokio::spawn(async move { shared.aggregator.run(every).await })
        };
        let mut handle = SimApiHandle {
            shared,
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
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// `https://127.0.0.1:…`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address())
    }

    /// The certificate authority of the cluster, as PEM.
    pub fn kube_ca_pem(&self) -> &str {
        self.cluster.pem()
    }

    /// The certificate authority of front proxies, as PEM.
    pub fn front_proxy_ca_pem(&self) -> &str {
        self.front_proxy.pem()
    }

    /// A kubeconfig for an administrator, as YAML with everything embedded.
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_for_certificate(&self.admin)
    }

    /// A kubeconfig for the holder of a certificate.
    pub fn kubeconfig_for_certificate(&self, user: &IssuedCertificate) -> String {
        self.kubeconfig_with(&format!(
            "    client-certificate-data: {}\n    client-key-data: {}\n",
            STANDARD.encode(&user.certificate),
            STANDARD.encode(&user.key),
        ))
    }

    /// A kubeconfig for the bearer of a token.
    pub fn kubeconfig_for_token(&self, token: &str) -> String {
        self.kubeconfig_with(&format!("    token: {token:?}\n"))
    }

    /// A client certificate for a user, in one group at most.
    pub fn issue_client_certificate(
        &self,
        user: &str,
        group: Option<&str>,
    ) -> Result<IssuedCertificate, SimError> {
        let groups: Vec<String> = group.into_iter().map(str::to_owned).collect();
        self.cluster.client(user, &groups)
    }

    /// A server certificate of the cluster's authority, for kubelets and extension API servers.
    pub fn issue_server_certificate(
        &self,
        common_name: &str,
        names: &[String],
    ) -> Result<IssuedCertificate, SimError> {
        self.cluster.server(common_name, names)
    }

    /// A bearer token for a user; one without an end for `None`.
    pub fn issue_token(&self, user: User, validity: Option<Duration>) -> Result<String, SimError> {
        self.shared
            .tokens
            .issue(user, self.shared.store.now(), validity)
    }

    /// Allows something more.
    pub fn allow(&self, rule: Rule) {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        rules.push(rule);
        let authorizer = Authorizer::new(&rules);
        *self
            .shared
            .authorizer
            .write()
            .unwrap_or_else(PoisonError::into_inner) = authorizer;
    }

    /// The cluster's authority, for the kubelets.
    pub(crate) fn kubelet_authority(&self) -> Result<crate::kubelet::Authority, SimError> {
        self.cluster.for_kubelets()
    }

    /// What the other parts of the cluster need of it.
    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Where simulated controllers and kubelets write.
    pub fn writer(&self) -> Arc<dyn ObjectWriter> {
        Arc::clone(&self.shared.store) as Arc<dyn ObjectWriter>
    }

    /// Where `kubectl logs` gets its text from.
    pub fn set_pod_logs(&self, logs: Arc<dyn PodLogs>) {
        *self
            .shared
            .logs
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Some(logs);
    }

    /// An object as it is now.
    pub fn object(&self, resource: Resource, namespace: Option<&str>, name: &str) -> Option<Value> {
        let key = join_key(namespace.unwrap_or_default(), name);
        let record = self.shared.store.get(resource, &key)?;
        Some(record.value(catalog::facts(resource)))
    }

    /// All objects of a resource, in the order of lists.
    pub fn objects(&self, resource: Resource) -> Vec<Value> {
        let facts = catalog::facts(resource);
        let page = self
            .shared
            .store
            .snapshot(&Query::all(resource), None, None, 0);
        page.map(|page| {
            page.records
                .iter()
                .map(|record| record.value(facts))
                .collect()
        })
        .unwrap_or_default()
    }

    /// How many objects of a resource there are.
    pub fn count(&self, resource: Resource) -> usize {
        self.shared.store.count(resource)
    }

    /// The version of the last write.
    pub fn resource_version(&self) -> u64 {
        self.shared.store.version()
    }

    /// Makes some requests fail or wait.
    pub fn inject(&self, fault: RequestFault) -> FaultId {
        self.shared.faults.add(fault)
    }

    /// Ends one fault.
    pub fn remove_fault(&self, id: FaultId) {
        self.shared.faults.remove(id);
    }

    /// Ends all faults, also frozen bookmarks and refused streaming lists.
    pub fn clear_faults(&self) {
        self.shared.faults.clear();
    }

    /// Stops sending bookmarks, or sends them again. The one that ends initial events always comes.
    pub fn freeze_bookmarks(&self, frozen: bool) {
        self.shared.faults.freeze_bookmarks(frozen);
    }

    /// Refuses streaming lists, as servers do that do not have them, or takes them again.
    pub fn refuse_streaming_lists(&self, refused: bool) {
        self.shared.faults.refuse_streaming_lists(refused);
    }

    /// Sends a bookmark to every watch that wants bookmarks.
    pub fn send_bookmarks(&self) {
        self.shared.bookmark_now.send_modify(|count| *count += 1);
    }

    /// Ends all watches, in the middle of their streams but properly.
    pub fn drop_watches(&self) {
        self.shared.drop_watches.send_modify(|count| *count += 1);
    }

    /// How many watches are open.
    pub fn open_watches(&self) -> usize {
        // Each listens for being dropped.
        self.shared.drop_watches.receiver_count()
    }

    /// Forgets the watch history: watches and lists of earlier versions are answered with 410.
    pub fn expire_history(&self) {
        self.shared.store.compact();
    }

    /// Closes the listener and cuts all connections. Objects stay, and so does the port: it refuses
    /// connections.
    pub async fn stop(&mut self) {
        if let Some(Listening { stop, task }) = self.listening.take() {
            stop.send_replace(true);
            let _ended_or_aborted = task.await;
            // Without it, resuming is still likely to get the port back.
            self.reserved = reserve(self.address()).ok();
        }
    }

    /// Listens again, on the same address, after a [`stop`](Self::stop).
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

    /// Stops and resumes at once.
    pub async fn restart(&mut self, history: History) -> Result<(), SimError> {
        self.stop().await;
        if history == History::Lose {
            self.shared.store.compact();
        }
        self.resume().await
    }

    /// Ends everything and waits until it has.
    pub async fn shutdown(mut self) {
        self.stop().await;
        self.prober.abort();
        let _aborted = (&mut self.prober).await;
        self.shared.aggregator.shutdown().await;
        self.shared.end_tasks().await;
    }

    fn serve(&mut self, listener: TcpListener) {
        let (stop, stopped) = watch::channel(false);
        let acceptor = self.acceptor.clone();
        let task = tokio::spawn(server::serve(
            listener,
            acceptor,
            Arc::clone(&self.shared),
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

/// Takes an address without listening, so that connections are refused.
fn reserve(address: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // The connections that were cut linger.
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
