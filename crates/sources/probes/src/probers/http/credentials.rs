//! Headers with secrets, read at each run: files of secrets change.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use secrecy::{ExposeSecret as _, SecretString};

use super::{HeaderSetting, HttpSettings};
use crate::run::Run;
use crate::{Failure, Reason};

/// Headers with secrets. Their values are marked as sensitive, so that `Debug` does not show them.
pub(super) struct Credentials(Vec<(HeaderName, HeaderValue)>);

impl Credentials {
    pub(super) async fn read(settings: &HttpSettings, run: &Run<'_>) -> Result<Self, Failure> {
        let failed = |setting: &str, problem: &str| {
            run.fail(
                Reason::Internal,
                format!("{setting} cannot be used: {problem}"),
            )
        };
        let mut headers = Vec::new();
        let mut add = |name: HeaderName, value: &str| match HeaderValue::try_from(value) {
            Ok(mut value) => {
                value.set_sensitive(true);
                headers.push((name, value));
                Ok(())
            }
            Err(_) => Err(failed(name.as_str(), "it is not the value of a header")),
        };
        for setting in &settings.headers {
            if let HeaderSetting::Secret(name, secret) = setting {
                let secret = secret.read().await;
                let secret = secret.map_err(|error| failed(name.as_str(), &error))?;
                add(name.clone(), secret.expose_secret())?;
            }
        }
        if let Some(basic) = &settings.basic_auth {
            let username = basic.username.read().await;
            let username = username.map_err(|error| failed("username", &error))?;
            let password = match &basic.password {
                Some(password) => password.read().await,
                None => Ok(SecretString::from("")),
            };
            let password = password.map_err(|error| failed("password", &error))?;
            let pair = format!("{}:{}", username.expose_secret(), password.expose_secret());
            let value = format!("Basic {}", STANDARD.encode(pair));
            add(header::AUTHORIZATION, &value)?;
        }
        if let Some((kind, secret)) = &settings.authorization {
            let secret = secret.read().await;
            let secret = secret.map_err(|error| failed("credentials", &error))?;
            add(
                header::AUTHORIZATION,
                &format!("{kind} {}", secret.expose_secret()),
            )?;
        }
        Ok(Self(headers))
    }

    pub(super) fn add_to(&self, headers: &mut HeaderMap) {
        for (name, value) in &self.0 {
            headers.append(name, value.clone());
        }
    }
}
