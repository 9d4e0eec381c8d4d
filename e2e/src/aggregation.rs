//! APIs that a process outside of pods serves behind an `APIService`.

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

/// API groups belong to the whole cluster: only one test at a time can serve one.
static REGISTERED: Mutex<()> = Mutex::const_new(());

/// Waits until no other test serves an API.
pub(crate) async fn turn() -> MutexGuard<'static, ()> {
    REGISTERED.lock().await
}

/// An API that the API server proxies to a process of the test: a Service without selector, an
/// `EndpointSlice` with the address of the process, and an `APIService` that trusts its certificate
/// only.
///
/// [`prepare`](Self::prepare) chooses the address and the certificate,
/// [`register`](Self::register) creates the objects, [`withdraw`](Self::withdraw) deletes them. For
/// a test that fails in between its namespace deletes them.
#[derive(Debug)]
pub struct AggregatedApi {
    service: String,
    listen: SocketAddr,
    certificate: PathBuf,
    key: PathBuf,
    /// None if the server itself writes its authority into its `APIService`s.
    authority: Option<String>,
    versions: Vec<String>,
    /// None for an API that is served beside another.
    _guard: Option<MutexGuard<'static, ()>>,
}

impl AggregatedApi {
    /// Waits until no other test serves an API, creates a certificate for the Service of this name,
    /// and finds a free port.
    pub async fn prepare(namespace: &TestNamespace, service: &str) -> Result<Self, E2eError> {
        let turn = turn().await;
        Self::prepare_in_turn(namespace, service, Some(turn))
    }

    /// The same beside an API that the test already serves, of which other versions will be
    /// registered.
    pub fn prepare_beside(
        _other: &Self,
        namespace: &TestNamespace,
        service: &str,
    ) -> Result<Self, E2eError> {
        Self::prepare_in_turn(namespace, service, None)
    }

    /// Creates the `APIService`s without an authority: the server writes its own into them.
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
            _guard: turn,
        })
    }

    /// The address that the process must listen on.
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// The file of the certificate that it must serve.
    pub fn certificate(&self) -> &PathBuf {
        &self.certificate
    }

    /// The file of the certificate's key.
    pub fn key(&self) -> &PathBuf {
        &self.key
    }

    /// Registers one version of a group: `register(&namespace, "metrics.k8s.io", "v1beta1")`.
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

    /// Waits until all registered versions are available.
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

    /// Deletes the `APIService`s and waits until they are gone.
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
#[derive(Debug, Clone)]
pub struct ServingPair {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
    /// The certificate of its authority.
    pub authority: String,
}

impl ServingPair {
    /// Signs a certificate for a DNS name.
    pub fn sign(name: &str) -> Result<Self, E2eError> {
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

/// Returns a free port. In the cluster's network namespace nobody else takes it in
/// between.
pub(crate) fn free_port(address: IpAddr) -> Result<u16, E2eError> {
    let port = TcpListener::bind((address, 0)).and_then(|listener| listener.local_addr());
    port.map(|address| address.port())
        .map_err(|source| E2eError::Program {
            program: format!("a listener on {address}"),
            source,
        })
}
