//! The serving certificate that the cluster signs, as a kubelet's with `serverTLSBootstrap`.
//!
//! The signer `kubernetes.io/kubelet-serving` signs for the user `system:node:NAME` alone, and
//! somebody must approve each request. Until then the server has a certificate of its own.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::PostParams;
use kubevitals_model::{Backoff, BackoffPolicy, Clock, Jitter, Rng};
use kubevitals_tls::{CertificateInfo, CertificateRequest, TlsError, parse_certificates};
use thiserror::Error;
use tokio::time::sleep;

const SIGNER: &str = "kubernetes.io/kubelet-serving";

/// How long a request waits for its approval before another takes its place, as a kubelet's.
const APPROVAL_TIMEOUT: Duration = Duration::from_mins(15);

/// How often the age of the certificate is looked at.
const CHECK_INTERVAL: Duration = Duration::from_hours(1);

const POLL: BackoffPolicy = BackoffPolicy {
    first: Duration::from_millis(500),
    second: Duration::from_secs(1),
    max: Duration::from_secs(15),
    jitter: Jitter::Added(0.1),
};

const RETRY: BackoffPolicy = BackoffPolicy {
    first: Duration::from_secs(2),
    second: Duration::from_secs(4),
    max: Duration::from_mins(5),
    jitter: Jitter::Added(0.1),
};

/// Keeps a serving certificate in a file.
pub struct CertificateKeeper {
    pub client: kube::Client,
    /// The name of the Node.
    pub node: String,
    /// The DNS names and addresses of the certificate.
    pub names: Vec<String>,
    /// The certificate and its key, in one file so that it can be replaced atomically.
    pub file: PathBuf,
    pub clock: Clock,
}

/// Why there is no certificate of the cluster.
#[derive(Debug, Error)]
pub enum CertificateError {
    #[error("cannot generate a certificate")]
    Generate(#[from] TlsError),
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot request a certificate from {SIGNER}")]
    Request(#[from] kube::Error),
    #[error("the certificate request {name} was not approved: {message}")]
    Rejected { name: String, message: String },
    #[error(
        "the certificate request {name} waits for approval: kubectl certificate approve {name}"
    )]
    NotApproved { name: String },
    #[error("the certificate request {name} has an unusable certificate")]
    Unusable { name: String },
}

impl CertificateKeeper {
    /// Makes sure that the file has a certificate with the names: a self-signed one if there is no
    /// other.
    pub fn prepare(&self) -> Result<(), CertificateError> {
        if self.current().is_some() {
            return Ok(());
        }
        let request = self.request()?;
        self.write(&request.self_signed_pem()?, &request.key_pem())
    }

    /// Requests the certificate and renews it, for ever.
    pub async fn run(self) {
        let mut backoff = Backoff::new(RETRY, Rng::random());
        loop {
            let issued = self.current().filter(|info| info.issuer != info.subject);
            if issued.is_some_and(|info| !is_due(&info, self.now())) {
                sleep(CHECK_INTERVAL).await;
                continue;
            }
            match self.renew().await {
                Ok(()) => {
                    tracing::info!("the cluster has signed the serving certificate");
                    backoff.reset();
                    continue;
                }
                // An outage is logged once, each request that nobody signed too.
                Err(CertificateError::Request(_)) if backoff.failures() > 0 => {}
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "no serving certificate of the cluster");
                }
            }
            sleep(backoff.next_wait()).await;
        }
    }

    /// The certificate in the file, if it is valid and has all names.
    fn current(&self) -> Option<CertificateInfo> {
        let info = first_certificate(&fs::read(&self.file).ok()?)?;
        let now = self.now();
        let is_valid = info.not_before <= now && now < info.not_after;
        let has_names = self.names.iter().all(|name| info.names.contains(name));
        (is_valid && has_names).then_some(info)
    }

    fn now(&self) -> SystemTime {
        let millis = u64::try_from(self.clock.now().unix_millis()).unwrap_or_default();
        UNIX_EPOCH + Duration::from_millis(millis)
    }

    fn request(&self) -> Result<CertificateRequest, TlsError> {
        let user = format!("system:node:{}", self.node);
        CertificateRequest::new(&user, "system:nodes", &self.names)
    }

    async fn renew(&self) -> Result<(), CertificateError> {
        let request = self.request()?;
        let requests: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        let object = CertificateSigningRequest {
            metadata: ObjectMeta {
                generate_name: Some("csr-".to_owned()),
                ..ObjectMeta::default()
            },
            spec: CertificateSigningRequestSpec {
                request: ByteString(request.pem()?.into_bytes()),
                signer_name: SIGNER.to_owned(),
                usages: Some(vec![
                    "digital signature".to_owned(),
                    "server auth".to_owned(),
                ]),
                ..CertificateSigningRequestSpec::default()
            },
            status: None,
        };
        let created = requests.create(&PostParams::default(), &object).await?;
        let name = created.metadata.name.unwrap_or_default();
        tracing::info!(
            request = name,
            signer = SIGNER,
            "requested a serving certificate"
        );
        let certificate = self.signed(&requests, &name).await?;
        let unusable = || CertificateError::Unusable { name: name.clone() };
        let pem = String::from_utf8(certificate).map_err(|_| unusable())?;
        first_certificate(pem.as_bytes()).ok_or_else(unusable)?;
        self.write(&pem, &request.key_pem())
    }

    /// Waits until the request is signed or refused.
    async fn signed(
        &self,
        requests: &Api<CertificateSigningRequest>,
        name: &str,
    ) -> Result<Vec<u8>, CertificateError> {
        let mut backoff = Backoff::new(POLL, Rng::random());
        let started = self.clock.moment().monotonic;
        loop {
            sleep(backoff.next_wait()).await;
            let request = requests.get(name).await?;
            let status = request.status.unwrap_or_default();
            if let Some(certificate) = status.certificate {
                return Ok(certificate.0);
            }
            let conditions = status.conditions.unwrap_or_default();
            let refused = conditions
                .into_iter()
                .find(|one| matches!(one.type_.as_str(), "Denied" | "Failed"));
            if let Some(condition) = refused {
                let message = condition.message.or(condition.reason).unwrap_or_default();
                let name = name.to_owned();
                return Err(CertificateError::Rejected { name, message });
            }
            if self.clock.moment().monotonic.saturating_sub(started) > APPROVAL_TIMEOUT {
                let name = name.to_owned();
                return Err(CertificateError::NotApproved { name });
            }
        }
    }

    /// Replaces the file, readable by the owner alone.
    fn write(&self, certificate: &str, key: &str) -> Result<(), CertificateError> {
        let failed = |source| CertificateError::Write {
            path: self.file.clone(),
            source,
        };
        if let Some(folder) = self.file.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let new = self.file.with_extension("new");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&new).map_err(failed)?;
        file.write_all(format!("{}\n{key}", certificate.trim_end()).as_bytes())
            .and_then(|()| file.sync_all())
            .and_then(|()| fs::rename(&new, &self.file))
            .map_err(failed)
    }
}

/// Without the key.
impl std::fmt::Debug for CertificateKeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertificateKeeper")
            .field("node", &self.node)
            .field("names", &self.names)
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

fn first_certificate(pem: &[u8]) -> Option<CertificateInfo> {
    let chain = parse_certificates(pem).ok()?;
    CertificateInfo::parse(chain.first()?)
}

/// Whether four fifths of its life are over, which leaves time for an approval.
fn is_due(info: &CertificateInfo, now: SystemTime) -> bool {
    let life = info.not_after.duration_since(info.not_before);
    let age = now.duration_since(info.not_before).unwrap_or_default();
    age >= life.unwrap_or_default() / 5 * 4
}

#[cfg(test)]
mod tests;
