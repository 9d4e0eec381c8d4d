//! APIs that a process beside the cluster serves behind an `APIService`.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Api;
use kube::api::DeleteParams;
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::json;
use tokio::sync::{Mutex, MutexGuard};

use crate::error::E2eError;
use crate::namespace::TestNamespace;
use crate::wait::has_condition;

/// The name of an API is the cluster's: only one test at a time can serve it.
static REGISTERED: Mutex<()> = Mutex::const_new(());

/// An API that the API server passes on to a process of the test: a Service without selector, an
/// `EndpointSlice` that leads to the process, and an `APIService` that trusts its certificate
/// alone.
///
/// [`prepare`](Self::prepare) says where to listen and with which certificate,
/// [`register`](Self::register) makes it known, [`withdraw`](Self::withdraw) ends it. A test that
/// fails in between leaves the rest to its namespace.
#[derive(Debug)]
pub struct AggregatedApi {
    service: String,
    listen: SocketAddr,
    certificate: PathBuf,
    key: PathBuf,
    /// None where the server itself writes its authority into its `APIService`s.
    authority: Option<String>,
    versions: Vec<String>,
    /// None for one that is served beside another.
    _turn: Option<MutexGuard<'static, ()>>,
}

impl AggregatedApi {
    /// Waits until no other test serves an API, makes a certificate for the Service of this name,
    /// and finds a free port.
    pub async fn prepare(namespace: &TestNamespace, service: &str) -> Result<Self, E2eError> {
        let turn = REGISTERED.lock().await;
        Self::prepare_in_turn(namespace, service, Some(turn))
    }

    /// The same beside an API that the test serves already, of which other versions will be
    /// registered.
    pub fn prepare_beside(
        _other: &Self,
        namespace: &TestNamespace,
        service: &str,
    ) -> Result<Self, E2eError> {
        Self::prepare_in_turn(namespace, service, None)
    }

    /// Leaves it to the server to say whom to trust: the `APIService`s begin without an authority.
    #[must_use]
    pub fn with_authority_of_its_own(mut self) -> Self {
        self.authority = None;
        self
    }

    fn prepare_in_turn(
        namespace: &TestNamespace,
        service: &str,
        turn: Option<MutexGuard<'static, ()>>,
    ) -> Result<Self, E2eError> {
        let name = format!("{service}.{}.svc", namespace.name());
        let pair = ServingPair::sign(&name)?;
        let certificate = namespace.write(&format!("{service}.crt"), &pair.certificate)?;
        let key = namespace.write(&format!("{service}.key"), &pair.key)?;
        Ok(Self {
            service: service.to_owned(),
            listen: SocketAddr::new(
                namespace.cluster().node_address(),
                free_port(namespace.cluster().node_address())?,
            ),
            certificate,
            key,
            authority: Some(pair.authority),
            versions: Vec::new(),
            _turn: turn,
        })
    }

    /// Where the process must listen.
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// The certificate that it must show, as a file.
    pub fn certificate(&self) -> &PathBuf {
        &self.certificate
    }

    /// The key of that certificate, as a file.
    pub fn key(&self) -> &PathBuf {
        &self.key
    }

    /// Makes one version of a group known: `register(&namespace, "metrics.k8s.io", "v1beta1")`.
    pub async fn register(
        &mut self,
        namespace: &TestNamespace,
        group: &str,
        version: &str,
    ) -> Result<(), E2eError> {
        let service = &self.service;
        namespace
            .apply(&json!({
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": service},
                "spec": {"ports": [{"name": "https", "port": 443, "protocol": "TCP"}]},
            }))
            .await?;
        namespace
            .apply(&json!({
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {"name": service, "labels": {"kubernetes.io/service-name": service}},
                "addressType": if self.listen.is_ipv4() { "IPv4" } else { "IPv6" },
                "ports": [{"name": "https", "port": self.listen.port(), "protocol": "TCP"}],
                "endpoints": [{"addresses": [self.listen.ip()], "conditions": {"ready": true}}],
            }))
            .await?;
        let name = format!("{version}.{group}");
        self.versions.push(name.clone());
        namespace
            .apply(&json!({
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": name},
                "spec": {
                    "group": group,
                    "version": version,
                    "groupPriorityMinimum": 100,
                    "versionPriority": 100,
                    "service": {"name": service, "namespace": namespace.name(), "port": 443},
                    "caBundle": self.authority.as_ref().map(|pem| STANDARD.encode(pem)),
                },
            }))
            .await
    }

    /// Waits until the API server finds all registered versions available.
    pub async fn available(&self, namespace: &TestNamespace) -> Result<(), E2eError> {
        for name in &self.versions {
            namespace
                .wait_for_global(name, |api: Option<&APIService>| {
                    has_condition(api, "Available")
                })
                .await?;
        }
        Ok(())
    }

    /// Ends it, and waits until the API server knows.
    pub async fn withdraw(self, namespace: &TestNamespace) -> Result<(), E2eError> {
        let api: Api<APIService> = Api::all(namespace.cluster().client());
        for name in &self.versions {
            api.delete(name, &DeleteParams::default())
                .await
                .map_err(E2eError::api(format!("withdrawing {name}")))?;
            namespace
                .wait_for_global(name, |api: Option<&APIService>| api.is_none())
                .await?;
        }
        Ok(())
    }
}

/// A serving certificate with its key, and the authority that signed it; all PEM.
struct ServingPair {
    certificate: String,
    key: String,
    authority: String,
}

impl ServingPair {
    fn sign(name: &str) -> Result<Self, E2eError> {
        let mut authority = CertificateParams::new(Vec::<String>::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let authority_key = KeyPair::generate()?;
        let authority_certificate = authority.self_signed(&authority_key)?;
        let issuer = Issuer::new(authority, authority_key);

        let mut leaf = CertificateParams::new(vec![name.to_owned()])?;
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = leaf.signed_by(&key, &issuer)?;
        Ok(Self {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            authority: authority_certificate.pem(),
        })
    }
}

/// A port that nobody listens on. In the cluster's network namespace nobody else takes it in
/// between.
fn free_port(address: IpAddr) -> Result<u16, E2eError> {
    let port = TcpListener::bind((address, 0)).and_then(|listener| listener.local_addr());
    port.map(|address| address.port())
        .map_err(|source| E2eError::Program {
            program: format!("a listener on {address}"),
            source,
        })
}
