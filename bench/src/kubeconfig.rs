//! The parts of a kubeconfig that a load generator needs: API server and client certificate.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kubevitals_tls::{ClientOptions, ClientTls, PemSource, ReloadingKeyPair, TrustRoots};
use serde::Deserialize;

use crate::BenchError;

/// An API server on a literal address and a client certificate for it.
#[derive(Debug)]
pub struct Kubeconfig {
    /// Address of the API server.
    pub server: SocketAddr,
    authority: PemSource,
    authority_pem: Vec<u8>,
    client_certificate_data: String,
    client_key_data: String,
    identity: Arc<ReloadingKeyPair>,
}

#[derive(Deserialize)]
struct File {
    clusters: Vec<NamedCluster>,
    users: Vec<NamedUser>,
}

#[derive(Deserialize)]
struct NamedCluster {
    cluster: Cluster,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority_data: String,
}

#[derive(Deserialize)]
struct NamedUser {
    user: User,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    client_certificate_data: String,
    client_key_data: String,
}

/// Field of the CA.
const AUTHORITY: &str = "certificate-authority-data";

impl Kubeconfig {
    /// Reads a file with one cluster and one user, everything embedded, as the simulated cluster
    /// writes it.
    pub fn read(path: &Path) -> Result<Self, BenchError> {
        let text = std::fs::read_to_string(path).map_err(BenchError::file("read", path))?;
        let unusable = |problem: String| BenchError::Kubeconfig {
            path: path.to_owned(),
            problem,
        };
        let file: File =
            serde_saphyr::from_str(&text).map_err(|error| unusable(error.to_string()))?;
        let cluster = file.clusters.into_iter().next();
        let user = file.users.into_iter().next();
        let (Some(NamedCluster { cluster }), Some(NamedUser { user })) = (cluster, user) else {
            return Err(unusable("it has no cluster or no user".to_owned()));
        };
        let server = cluster
            .server
            .strip_prefix("https://")
            .unwrap_or(&cluster.server);
        let server = server.parse().map_err(|_| {
            unusable(format!(
                "{} is not https:// and a literal address",
                cluster.server
            ))
        })?;
        let decoded = |label, data: &str| {
            let decoded = STANDARD.decode(data);
            decoded.map_err(|error| unusable(format!("{label}: {error}")))
        };
        let pem = |label, data: &str| {
            Ok::<_, BenchError>(PemSource::Inline {
                label,
                pem: decoded(label, data)?.into(),
            })
        };
        Ok(Self {
            server,
            authority: pem(AUTHORITY, &cluster.certificate_authority_data)?,
            authority_pem: decoded(AUTHORITY, &cluster.certificate_authority_data)?,
            identity: ReloadingKeyPair::load(
                "the client certificate",
                pem("client-certificate-data", &user.client_certificate_data)?,
                pem("client-key-data", &user.client_key_data)?,
                SystemTime::now(),
            )?,
            client_certificate_data: user.client_certificate_data,
            client_key_data: user.client_key_data,
        })
    }

    /// The cluster's CA.
    pub fn authority_pem(&self) -> &[u8] {
        &self.authority_pem
    }

    /// Returns a kubeconfig of the same user for another API server, whose CA is trusted in
    /// addition.
    pub fn for_server(&self, server: SocketAddr, authority: &[u8]) -> String {
        let bundle = [&self.authority_pem, authority].concat();
        serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "bench",
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
            "clusters": [{"name": "bench", "cluster": {
                "server": format!("https://{server}"),
                "certificate-authority-data": STANDARD.encode(bundle),
            }}],
            "users": [{"name": "bench", "user": {
                "client-certificate-data": self.client_certificate_data,
                "client-key-data": self.client_key_data,
            }}],
        })
        .to_string()
    }

    /// Returns the TLS configuration for the API server.
    pub fn api_tls(&self) -> Result<ClientTls, BenchError> {
        let sources = vec![self.authority.clone()];
        let roots = TrustRoots::load("the cluster's authority", sources, SystemTime::now())?;
        Ok(ClientTls::trusting(roots, &self.options())?)
    }

    /// Returns the TLS configuration for a server on loopback with a self-signed certificate. The
    /// client certificate is no secret, and its key never leaves this process.
    pub fn self_signed_tls(&self) -> Result<ClientTls, BenchError> {
        Ok(ClientTls::dangerous_without_verification(&self.options())?)
    }

    fn options(&self) -> ClientOptions {
        ClientOptions {
            identity: Some(Arc::clone(&self.identity)),
            ..ClientOptions::default()
        }
    }
}
