//! Tokens of each kind of credentials, and files that have none.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use kubevitals_gcm::{Credentials, GcmError, GcmExporter, GcmMetrics, GcmSettings, MetadataServer};
use kubevitals_sim::google::{CloudMonitoring, GoogleIdentity, ReceivedCall};
use kubevitals_tls::{Alpn, SelfSigned, SelfSignedOptions, ServerOptions, ServerTls};
use serde_json::{Value, json};
use tokio_rustls::TlsAcceptor;

use crate::support::{
    PROJECT, Pipeline, Results, at, backend, clock, gauge, no_metadata, quick, settings,
};

fn form(body: &str) -> BTreeMap<String, String> {
    form_urlencoded::parse(body.as_bytes())
        .map(|(name, value)| (name.into_owned(), value.into_owned()))
        .collect()
}

/// Writes one point with these credentials, and returns the token that was used.
async fn token_of(credentials: Credentials) -> String {
    call_of(credentials).await.authorization.unwrap()
}

async fn call_of(credentials: Credentials) -> ReceivedCall {
    let clock = clock();
    let backend = backend(&clock).await;
    let settings = settings(backend.address);
    let pipeline = Pipeline::start_as(settings, &clock, credentials, no_metadata(), quick());
    let pushed = pipeline.push([gauge(0, 0)]);
    assert_eq!(pipeline.flush(pushed).await, Results::sent(1));
    backend.received().calls[0].clone()
}

fn parse(json: &Value) -> Credentials {
    Credentials::parse(json.to_string().as_bytes()).unwrap()
}

#[tokio::test]
async fn a_service_account_signs_for_its_tokens() {
    let identity = GoogleIdentity::start().await.unwrap();
    let key = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let der = key.as_der().unwrap();
    let pem = format!(
        "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
        STANDARD.encode(der.as_ref())
    );
    let token_uri = format!("http://{}/token", identity.address);
    let file = json!({"type": "service_account", "project_id": "of-file", "private_key": pem,
        "private_key_id": "k1", "client_email": "a@b", "token_uri": token_uri});
    let credentials = parse(&file);
    assert_eq!(credentials.project(), Some("of-file"));
    assert_eq!(format!("{credentials:?}"), "ServiceAccount");
    assert_eq!(token_of(credentials).await, "Bearer token-1");

    let request = &identity.requests()[0];
    let sent = form(&request.body);
    assert_eq!(
        sent["grant_type"],
        "urn:ietf:params:oauth:grant-type:jwt-bearer"
    );
    let (signed, signature) = sent["assertion"].rsplit_once('.').unwrap();
    let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.public_key().as_ref());
    let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
    public.verify(signed.as_bytes(), &signature).unwrap();
    let parts: Vec<Value> = signed
        .split('.')
        .map(|part| serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap())
        .collect();
    assert_eq!(parts[0], json!({"alg": "RS256", "typ": "JWT", "kid": "k1"}));
    let issued = at(0).unix_seconds();
    assert_eq!(
        parts[1],
        json!({"iss": "a@b", "aud": token_uri, "iat": issued, "exp": issued + 3_600,
            "scope": "https://www.googleapis.com/auth/monitoring.write"})
    );
}

#[tokio::test]
async fn a_user_refreshes_a_token() {
    let identity = GoogleIdentity::start().await.unwrap();
    let credentials = parse(&json!({"type": "authorized_user", "client_id": "c",
        "client_secret": "s3cret", "refresh_token": "r3fresh", "quota_project_id": "q",
        "token_uri": format!("http://{}/token", identity.address)}));
    let printed = format!("{credentials:?}");
    assert_eq!(printed, "AuthorizedUser");
    assert_eq!(credentials.project(), Some("q"));
    let call = call_of(credentials).await;
    assert_eq!(call.authorization.as_deref(), Some("Bearer token-1"));
    assert_eq!(call.quota_project.as_deref(), Some("q"));
    let sent = form(&identity.requests()[0].body);
    let expected = [
        ("client_id", "c"),
        ("client_secret", "s3cret"),
        ("grant_type", "refresh_token"),
        ("refresh_token", "r3fresh"),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(sent, BTreeMap::from(expected));
}

#[tokio::test]
async fn a_federated_identity_exchanges_its_token() {
    let identity = GoogleIdentity::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "from-file\n").unwrap();
    let url = |path: &str| format!("http://{}/{path}", identity.address);
    let account = |source: Value| {
        json!({"type": "external_account", "audience": "//iam/pool", "token_url": url("sts"),
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "credential_source": source})
    };
    let of_file = account(json!({"file": file}));
    assert_eq!(token_of(parse(&of_file)).await, "Bearer federated-1");
    let sent = form(&identity.requests()[0].body);
    assert_eq!(sent["subject_token"], "from-file");
    assert_eq!(sent["audience"], "//iam/pool");
    let scope = "https://www.googleapis.com/auth/";
    assert_eq!(sent["scope"], format!("{scope}monitoring.write"));

    let mut of_url = account(
        json!({"url": url("subject"), "headers": {"Authorization": "x"},
        "format": {"type": "json", "subject_token_field_name": "id_token"}}),
    );
    of_url["service_account_impersonation_url"] = json!(url("impersonate"));
    assert_eq!(token_of(parse(&of_url)).await, "Bearer impersonated");
    let requests = identity.requests();
    let [.., subject, exchange, impersonate] = &requests[..] else {
        panic!("{requests:?}");
    };
    assert_eq!(subject.authorization.as_deref(), Some("x"));
    let sent = form(&exchange.body);
    assert_eq!(sent["subject_token"], "subject");
    assert_eq!(sent["scope"], format!("{scope}cloud-platform"));
    assert_eq!(
        impersonate.authorization.as_deref(),
        Some("Bearer federated-2")
    );
    let body: Value = serde_json::from_str(&impersonate.body).unwrap();
    let wanted = json!({"scope": [format!("{scope}monitoring.write")], "lifetime": "3600s"});
    assert_eq!(body, wanted);
}

#[tokio::test]
async fn a_token_is_kept_and_renewed_before_it_expires() {
    let clock = clock();
    let backend = backend(&clock).await;
    let identity = GoogleIdentity::start().await.unwrap();
    identity.set_lifetime(3_000);
    let address = identity.address.to_string();
    let metadata = MetadataServer::new(|_| Some(address.clone())).unwrap();
    let settings = settings(backend.address);
    let pipeline = Pipeline::start_as(settings, &clock, Credentials::Metadata, metadata, quick());
    let mut pushed = 0;
    let mut second = 0;
    for (step, tokens) in [(0, 1), (2_700, 1), (80, 2)] {
        clock.advance(Duration::from_secs(step));
        second += i64::try_from(step).unwrap();
        pushed += pipeline.push([gauge(0, second)]);
        let done = usize::try_from(pushed).unwrap();
        backend
            .until(|received| received.points.len() == done)
            .await;
        assert_eq!(identity.tokens(), tokens, "{second}");
    }
    assert_eq!(pipeline.flush(pushed).await, Results::sent(3));
}

#[test]
fn default_credentials_are_found_where_google_looks_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let user = json!({"type": "authorized_user", "client_id": "c", "client_secret": "s",
        "refresh_token": "r"});
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::create_dir_all(folder.path().join(".config/gcloud")).unwrap();
    let known = path(".config/gcloud/application_default_credentials.json");
    let find = |variables: &[(&str, String)]| {
        let variables: BTreeMap<&str, String> = variables.iter().cloned().collect();
        Credentials::find(move |name| variables.get(name).cloned())
    };
    let home = ("HOME", folder.path().display().to_string());
    let kind = |credentials: Credentials| format!("{credentials:?}");
    assert_eq!(kind(find(&[]).unwrap()), "Metadata");
    assert_eq!(kind(find(std::slice::from_ref(&home)).unwrap()), "Metadata");
    std::fs::write(&known, user.to_string()).unwrap();
    assert_eq!(
        kind(find(std::slice::from_ref(&home)).unwrap()),
        "AuthorizedUser"
    );
    let sdk = ("CLOUDSDK_CONFIG", path("none"));
    assert_eq!(kind(find(&[home.clone(), sdk]).unwrap()), "Metadata");
    // A file that is named must be there.
    let named = ("GOOGLE_APPLICATION_CREDENTIALS", path("missing.json"));
    let error = find(&[home, named]).unwrap_err().to_string();
    assert!(error.contains("missing.json"), "{error}");
}

#[test]
fn a_file_without_credentials_says_what_is_wrong_and_no_secret() {
    let user = json!({"type": "authorized_user", "client_id": "c", "client_secret": "s3cret",
        "refresh_token": "s3cret"});
    let with = |key: &str, value: Value| {
        let mut changed = user.clone();
        changed[key] = value;
        changed.to_string()
    };
    let account = json!({"type": "service_account", "client_email": "e",
        "private_key": "-----BEGIN PRIVATE KEY-----\ns3cret\n-----END PRIVATE KEY-----"});
    for (text, problem) in [
        ("s3cret".to_owned(), "no JSON"),
        ("{}".to_owned(), "no type"),
        (with("type", json!("gdch_service_account")), "not supported"),
        (with("refresh_token", json!("")), "no refresh_token"),
        (
            with("token_uri", json!("http://s3cret.test/")),
            "no https URL",
        ),
        (account.to_string(), "private_key"),
        (
            json!({"type": "external_account"}).to_string(),
            "credential_source",
        ),
    ] {
        let error = Credentials::parse(text.as_bytes()).unwrap_err();
        assert!(error.contains(problem), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
}

#[tokio::test]
async fn the_backend_is_verified_and_tokens_are_not_sent_in_the_clear() {
    kubevitals_tls::install_crypto_provider();
    let folder = tempfile::tempdir().unwrap();
    let options = SelfSignedOptions::new("monitoring", vec!["127.0.0.1".to_owned()]);
    let certificate = SelfSigned::start(options, SystemTime::now()).unwrap();
    let authority = folder.path().join("ca.crt");
    std::fs::write(&authority, certificate.ca_bundle_pem().as_bytes()).unwrap();
    let options = ServerOptions {
        alpn: vec![Alpn::Http11],
        ..ServerOptions::default()
    };
    let tls = ServerTls::new(certificate, &options).unwrap();
    let clock = clock();
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let acceptor = TlsAcceptor::from(tls.config());
    let backend = CloudMonitoring::start(address, Some(acceptor), PROJECT, clock.clock())
        .await
        .unwrap();
    let encrypted = GcmSettings {
        endpoint: format!("https://{}", backend.address).parse().unwrap(),
        certificate: Some(authority),
        ..settings(backend.address)
    };
    let pipeline = Pipeline::start(encrypted, &clock);
    let pushed = pipeline.push([gauge(0, 0)]);
    assert_eq!(pipeline.flush(pushed).await, Results::sent(1));

    let remote = GcmSettings {
        endpoint: "http://monitoring.test".parse().unwrap(),
        ..settings(backend.address)
    };
    let metrics = GcmMetrics::unregistered();
    let error = GcmExporter::new(
        remote,
        Credentials::Metadata,
        no_metadata(),
        None,
        clock.clock(),
        metrics,
    )
    .unwrap_err();
    assert!(matches!(error, GcmError::Endpoint(_)), "{error}");
}
