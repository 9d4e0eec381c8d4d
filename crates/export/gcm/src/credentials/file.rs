//! Files of credentials, and the token requests that they are for.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Uri;
use kubevitals_model::Timestamp;
use kubevitals_tls::parse_private_key;
use rustls_pki_types::PrivateKeyDer;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{FileCredentials, FileKind};
use crate::settings::is_secure;

/// What the tokens are for.
pub(super) const SCOPE: &str = "https://www.googleapis.com/auth/monitoring.write";

/// What a token must allow to become that of another account.
pub(super) const IMPERSONATION_SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

/// The lifetime of tokens that are asked for, in seconds.
pub(super) const LIFETIME: i64 = 3_600;

/// An account with a key of its own.
#[derive(Clone)]
pub(crate) struct ServiceAccount {
    email: String,
    key_id: String,
    key: Arc<RsaKeyPair>,
    pub(super) token_url: Uri,
}

/// A person who logged in with `gcloud`.
#[derive(Clone)]
pub(crate) struct AuthorizedUser {
    client_id: String,
    client_secret: String,
    refresh_token: String,
    pub(super) token_url: Uri,
}

/// An identity of another system, whose tokens Google exchanges.
#[derive(Clone)]
pub(crate) struct ExternalAccount {
    audience: String,
    subject_token_type: String,
    pub(super) token_url: Uri,
    pub(super) impersonation_url: Option<Uri>,
    pub(super) source: SubjectSource,
    /// The name of the field with the token; `None` if the token is all there is.
    pub(super) field: Option<String>,
}

/// Where the token of the other system is.
#[derive(Clone)]
pub(crate) enum SubjectSource {
    File(PathBuf),
    Url(Uri, BTreeMap<String, String>),
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Wire {
    r#type: String,
    project_id: Option<String>,
    quota_project_id: Option<String>,
    client_email: Option<String>,
    private_key_id: Option<String>,
    private_key: Option<String>,
    token_uri: Option<String>,
    client_id: Option<String>,
    client_secret: Option<String>,
    refresh_token: Option<String>,
    audience: Option<String>,
    subject_token_type: Option<String>,
    token_url: Option<String>,
    service_account_impersonation_url: Option<String>,
    credential_source: Option<SourceWire>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct SourceWire {
    file: Option<PathBuf>,
    url: Option<String>,
    headers: BTreeMap<String, String>,
    format: FormatWire,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct FormatWire {
    r#type: Option<String>,
    subject_token_field_name: Option<String>,
}

/// Parses a file.
pub(super) fn parse(json: &[u8]) -> Result<FileCredentials, String> {
    // The error of the library may quote a part of the text.
    let wire: Wire = serde_json::from_slice(json).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        format!("it is no JSON of credentials at line {line}, column {column}")
    })?;
    let project = wire.project_id.clone();
    let quota_project = wire.quota_project_id.clone();
    let kind = match wire.r#type.as_str() {
        "service_account" => FileKind::ServiceAccount(wire.service_account()?),
        "authorized_user" => FileKind::AuthorizedUser(wire.authorized_user()?),
        "external_account" => FileKind::ExternalAccount(wire.external_account()?),
        "" => return Err("it has no type".to_owned()),
        other => {
            let other: String = other.chars().take(40).collect();
            return Err(format!(
                "its type {other:?} is not supported; use service_account, authorized_user or \
                 external_account"
            ));
        }
    };
    Ok(FileCredentials {
        kind,
        project,
        quota_project,
    })
}

impl Wire {
    fn service_account(self) -> Result<ServiceAccount, String> {
        let pem = required(self.private_key, "private_key")?;
        let invalid = |problem: &str| format!("its private_key {problem}");
        let key = parse_private_key(pem.as_bytes()).map_err(|error| invalid(&error.to_string()))?;
        let key = match &key {
            PrivateKeyDer::Pkcs8(der) => RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()),
            PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()),
            _ => return Err(invalid("is no RSA key")),
        };
        Ok(ServiceAccount {
            email: required(self.client_email, "client_email")?,
            key_id: self.private_key_id.unwrap_or_default(),
            key: Arc::new(key.map_err(|_| invalid("is no RSA key of 2048 bits or more"))?),
            token_url: token_url(self.token_uri)?,
        })
    }

    fn authorized_user(self) -> Result<AuthorizedUser, String> {
        Ok(AuthorizedUser {
            client_id: required(self.client_id, "client_id")?,
            client_secret: required(self.client_secret, "client_secret")?,
            refresh_token: required(self.refresh_token, "refresh_token")?,
            token_url: token_url(self.token_uri)?,
        })
    }

    fn external_account(self) -> Result<ExternalAccount, String> {
        let source = self.credential_source.unwrap_or_default();
        let field = match source.format.r#type.as_deref() {
            None | Some("text") => None,
            Some("json") => Some(required(
                source.format.subject_token_field_name,
                "credential_source.format.subject_token_field_name",
            )?),
            Some(_) => return Err("its credential_source.format is not text or json".to_owned()),
        };
        let subject = match (source.file, source.url) {
            (Some(file), _) => SubjectSource::File(file),
            (None, Some(url)) => {
                let url = url.parse::<Uri>().ok();
                let url = url.filter(|url| url.scheme().is_some() && url.host().is_some());
                let url = url.ok_or("its credential_source.url is no URL")?;
                SubjectSource::Url(url, source.headers)
            }
            (None, None) => {
                return Err("its credential_source has no file and no url".to_owned());
            }
        };
        let impersonation_url = self.service_account_impersonation_url;
        Ok(ExternalAccount {
            audience: required(self.audience, "audience")?,
            subject_token_type: required(self.subject_token_type, "subject_token_type")?,
            token_url: secure_url(&required(self.token_url, "token_url")?, "token_url")?,
            impersonation_url: impersonation_url
                .map(|url| secure_url(&url, "service_account_impersonation_url"))
                .transpose()?,
            source: subject,
            field,
        })
    }
}

fn required(value: Option<String>, name: &str) -> Result<String, String> {
    value
        .filter(|value| !value.is_empty())
        .ok_or_else(|| format!("it has no {name}"))
}

fn token_url(given: Option<String>) -> Result<Uri, String> {
    let given = given.unwrap_or_else(|| "https://oauth2.googleapis.com/token".to_owned());
    secure_url(&given, "token_uri")
}

fn secure_url(text: &str, name: &str) -> Result<Uri, String> {
    let url: Option<Uri> = text.parse().ok();
    url.filter(is_secure)
        .ok_or_else(|| format!("its {name} is no https URL"))
}

impl FileKind {
    /// Whether tokens are asked for over TLS.
    pub(super) fn needs_tls(&self) -> bool {
        let is_tls = |url: &Uri| url.scheme_str() == Some("https");
        match self {
            Self::ServiceAccount(account) => is_tls(&account.token_url),
            Self::AuthorizedUser(user) => is_tls(&user.token_url),
            Self::ExternalAccount(account) => {
                is_tls(&account.token_url)
                    || account.impersonation_url.as_ref().is_some_and(is_tls)
                    || matches!(&account.source, SubjectSource::Url(url, _) if is_tls(url))
            }
        }
    }
}

impl ServiceAccount {
    /// The form of a token request: an assertion signed with the key.
    pub(super) fn form(&self, now: Timestamp) -> Result<String, String> {
        let issued = now.unix_seconds();
        let header = json!({"alg": "RS256", "typ": "JWT", "kid": self.key_id});
        let claims = json!({
            "iss": self.email,
            "scope": SCOPE,
            "aud": self.token_url.to_string(),
            "iat": issued,
            "exp": issued.saturating_add(LIFETIME),
        });
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&header), part(&claims));
        let mut signature = vec![0; self.key.public_modulus_len()];
        self.key
            .sign(
                &RSA_PKCS1_SHA256,
                &SystemRandom::new(),
                signed.as_bytes(),
                &mut signature,
            )
            .map_err(|_| "the assertion cannot be signed".to_owned())?;
        let assertion = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature));
        Ok(form(&[
            ("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
            ("assertion", &assertion),
        ]))
    }
}

impl AuthorizedUser {
    pub(super) fn form(&self) -> String {
        form(&[
            ("grant_type", "refresh_token"),
            ("client_id", &self.client_id),
            ("client_secret", &self.client_secret),
            ("refresh_token", &self.refresh_token),
        ])
    }
}

impl ExternalAccount {
    /// The form of a token exchange.
    pub(super) fn form(&self, subject_token: &str) -> String {
        let scope = match self.impersonation_url {
            Some(_) => IMPERSONATION_SCOPE,
            None => SCOPE,
        };
        let exchange = "urn:ietf:params:oauth:grant-type:token-exchange";
        let access = "urn:ietf:params:oauth:token-type:access_token";
        form(&[
            ("grant_type", exchange),
            ("audience", &self.audience),
            ("scope", scope),
            ("requested_token_type", access),
            ("subject_token_type", &self.subject_token_type),
            ("subject_token", subject_token),
        ])
    }

    /// The token in what the source returned.
    pub(super) fn subject_token(&self, bytes: &[u8]) -> Option<String> {
        let token = match &self.field {
            None => String::from_utf8(bytes.to_vec()).ok()?.trim().to_owned(),
            Some(field) => {
                let value: Value = serde_json::from_slice(bytes).ok()?;
                value.get(field)?.as_str()?.to_owned()
            }
        };
        (!token.is_empty()).then_some(token)
    }
}

fn form(pairs: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new())
        .extend_pairs(pairs)
        .finish()
}
