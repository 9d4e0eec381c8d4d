use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequestCondition, CertificateSigningRequestStatus,
};
use kube::client::Body;
use kubevitals_model::{SteppedClock, Timestamp};
use parking_lot::Mutex;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, Issuer, KeyPair, PublicKeyData,
    SignatureAlgorithm,
};
use tower::service_fn;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::FromDer as _;

use super::*;

/// An API server that signs requests, or does with them what it is set to.
#[derive(Default)]
struct Signer {
    requests: Vec<CertificateSigningRequest>,
    denies: bool,
}

/// The key of a request.
struct RequestedKey(Vec<u8>);

impl PublicKeyData for RequestedKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

/// The subject, the number of names and the key of a request.
fn requested(pem: &[u8]) -> (String, usize, RequestedKey) {
    let (_, pem) = x509_parser::pem::parse_x509_pem(pem).unwrap();
    let (_, request) = X509CertificationRequest::from_der(&pem.contents).unwrap();
    let names = request.requested_extensions().unwrap().find_map(|one| {
        let ParsedExtension::SubjectAlternativeName(names) = one else {
            return None;
        };
        Some(names.general_names.len())
    });
    let info = &request.certification_request_info;
    let key = info.subject_pki.subject_public_key.data.to_vec();
    (info.subject.to_string(), names.unwrap(), RequestedKey(key))
}

fn authority() -> Issuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    Issuer::new(params, KeyPair::generate().unwrap())
}

impl Signer {
    fn status(&self, request: &CertificateSigningRequest) -> CertificateSigningRequestStatus {
        if self.denies {
            return CertificateSigningRequestStatus {
                conditions: Some(vec![CertificateSigningRequestCondition {
                    type_: "Denied".to_owned(),
                    message: Some("not today".to_owned()),
                    ..CertificateSigningRequestCondition::default()
                }]),
                ..CertificateSigningRequestStatus::default()
            };
        }
        let (subject, names, key) = requested(&request.spec.request.0);
        assert_eq!(subject, "O=system:nodes, CN=system:node:edge-1");
        assert_eq!(names, 2);
        let names = ["edge-1".to_owned(), "10.0.0.7".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, "system:node:edge-1");
        params.not_before = UNIX_EPOCH.into();
        params.not_after = (UNIX_EPOCH + Duration::from_secs(1_000_000)).into();
        let signed = params.signed_by(&key, &authority()).unwrap();
        CertificateSigningRequestStatus {
            certificate: Some(ByteString(signed.pem().into_bytes())),
            ..CertificateSigningRequestStatus::default()
        }
    }
}

async fn respond(signer: Arc<Mutex<Signer>>, request: Request<Body>) -> Response<Body> {
    let is_create = request.method() == Method::POST;
    #[expect(clippy::disallowed_methods, reason = "a request of this test")]
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let mut signer = signer.lock();
    let object = if is_create {
        let mut object: CertificateSigningRequest = serde_json::from_slice(&body).unwrap();
        object.metadata.name = Some(format!("csr-{}", signer.requests.len()));
        signer.requests.push(object.clone());
        object
    } else {
        let mut object = signer.requests.last().unwrap().clone();
        object.status = Some(signer.status(&object));
        object
    };
    Response::new(Body::from(serde_json::to_vec(&object).unwrap()))
}

fn keeper(
    folder: &std::path::Path,
    clock: &SteppedClock,
) -> (CertificateKeeper, Arc<Mutex<Signer>>) {
    let signer = Arc::new(Mutex::new(Signer::default()));
    let service = {
        let signer = Arc::clone(&signer);
        service_fn(move |request: Request<Body>| {
            let signer = Arc::clone(&signer);
            async move { Ok::<_, std::convert::Infallible>(respond(signer, request).await) }
        })
    };
    let keeper = CertificateKeeper {
        client: kube::Client::new(service, "default"),
        node: "edge-1".to_owned(),
        names: vec!["edge-1".to_owned(), "10.0.0.7".to_owned()],
        file: folder.join("pki/server.pem"),
        clock: clock.clock(),
    };
    (keeper, signer)
}

fn clock() -> SteppedClock {
    // rcgen's own certificates are valid from 1975 on.
    SteppedClock::new(Timestamp::from_unix_millis(1_000))
}

#[tokio::test(start_paused = true)]
async fn the_cluster_signs_a_certificate_for_the_user_of_the_node() {
    let folder = tempfile::tempdir().unwrap();
    let (keeper, signer) = keeper(folder.path(), &clock());
    keeper.renew().await.unwrap();
    let request = signer.lock().requests[0].clone();
    assert_eq!(request.spec.signer_name, SIGNER);
    assert_eq!(
        request.spec.usages.unwrap(),
        ["digital signature", "server auth"]
    );
    let info = keeper.current().unwrap();
    assert!(info.subject.contains("CN=system:node:edge-1"), "{info:?}");
    assert_ne!(info.issuer, info.subject);
    let mode = fs::metadata(&keeper.file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = fs::read(&keeper.file).unwrap();
    kubevitals_tls::parse_private_key(&text).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_denied_says_why_and_leaves_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let (keeper, signer) = keeper(folder.path(), &clock());
    signer.lock().denies = true;
    let error = keeper.renew().await.unwrap_err();
    assert!(error.to_string().contains("not today"), "{error}");
    assert!(!keeper.file.exists());
}

#[tokio::test(start_paused = true)]
async fn a_certificate_is_renewed_at_four_fifths_of_its_life_and_for_new_names() {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock();
    let (mut keeper, _signer) = keeper(folder.path(), &clock);
    keeper.renew().await.unwrap();
    let info = keeper.current().unwrap();
    assert!(!is_due(&info, keeper.now()));
    clock.advance(Duration::from_secs(799_000));
    assert!(!is_due(&info, keeper.now()));
    clock.advance(Duration::from_secs(1_000));
    assert!(is_due(&info, keeper.now()));
    // An address that it does not have.
    keeper.names.push("10.0.0.8".to_owned());
    assert_eq!(keeper.current(), None);
}

#[tokio::test]
async fn a_server_starts_with_a_certificate_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let now = Timestamp::from_system_time(SystemTime::now());
    let (keeper, signer) = keeper(folder.path(), &SteppedClock::new(now));
    keeper.prepare().unwrap();
    let info = keeper.current().unwrap();
    assert_eq!(info.issuer, info.subject);
    let before = fs::read(&keeper.file).unwrap();
    keeper.prepare().unwrap();
    assert_eq!(fs::read(&keeper.file).unwrap(), before);
    assert!(signer.lock().requests.is_empty());
}
