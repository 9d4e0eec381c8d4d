//! Exec plugins and their client certificates.
//!
//! kube runs exec plugins internally: while a client is built, once for each part of it that needs
//! credentials, and again when a token has expired. [`client`](crate::client()) reports what can be
//! observed from outside: the result of building the client, as one call, and the expiry of the
//! certificate ([`kube::Client::valid_until`]). Successful token renewals cannot be observed; a
//! failed one is the error of the request that needed it, and [`call_of`] extracts the call.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use kube::client::AuthError;
use parking_lot::Mutex;

use crate::hooks::{ExecCallStatus, Hooks};

/// The exit code of a call without one, as in client-go.
const FAILED: i32 = 1;

/// The client certificates of a process: reports the earliest expiry, and the age of each when it
/// is rotated.
///
/// Clones share them. client-go keeps the same list for all its exec plugins.
#[derive(Clone)]
pub struct Certificates {
    shared: Arc<Shared>,
}

/// One certificate and its replacements. Dropping it removes it from the list.
pub struct Certificate {
    shared: Arc<Shared>,
    id: u64,
}

struct Shared {
    hooks: Hooks,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    next: u64,
    validity: HashMap<u64, Validity>,
}

#[derive(Clone, Copy)]
struct Validity {
    from: SystemTime,
    until: SystemTime,
}

impl Certificates {
    /// Creates an empty list.
    pub fn new(hooks: &Hooks) -> Self {
        Self {
            shared: Arc::new(Shared {
                hooks: hooks.clone(),
                known: Mutex::default(),
            }),
        }
    }

    /// Adds a certificate with this validity.
    #[must_use = "a certificate that is dropped is no longer looked at"]
    pub fn add(&self, not_before: SystemTime, not_after: SystemTime) -> Certificate {
        let id = self.shared.change(|known| {
            let id = known.next;
            known.next += 1;
            let validity = Validity {
                from: not_before,
                until: not_after,
            };
            known.validity.insert(id, validity);
            id
        });
        Certificate {
            shared: Arc::clone(&self.shared),
            id,
        }
    }
}

impl Certificate {
    /// Replaces the certificate by one with this validity.
    pub fn replace(&self, not_before: SystemTime, not_after: SystemTime, now: SystemTime) {
        let validity = Validity {
            from: not_before,
            until: not_after,
        };
        let before = self
            .shared
            .change(|known| known.validity.insert(self.id, validity));
        if let Some(before) = before {
            // The clock may have been set back.
            let age = now.duration_since(before.from).unwrap_or_default();
            self.shared.hooks.client_cert_rotation_age.observe(age);
        }
    }
}

impl Drop for Certificate {
    fn drop(&mut self) {
        self.shared.change(|known| known.validity.remove(&self.id));
    }
}

impl Shared {
    /// Changes the list and reports the earliest expiry.
    fn change<T>(&self, change: impl FnOnce(&mut Known) -> T) -> T {
        let mut known = self.known.lock();
        let changed = change(&mut known);
        let first = known.validity.values().map(|validity| validity.until).min();
        // Under the lock, so that the last report is the current state.
        self.hooks.client_cert_expiry.set(first);
        changed
    }
}

/// Returns the exit code and status of the exec plugin call that caused an error, if there is one.
///
/// Takes the error of a request, or of building a client, and searches its sources.
pub fn call_of(error: &(dyn Error + 'static)) -> Option<(i32, ExecCallStatus)> {
    let mut causes = std::iter::successors(Some(error), |&error| error.source());
    match causes.find_map(auth_error)? {
        AuthError::AuthExecRun { out, .. } => Some((
            out.status.code().unwrap_or(FAILED),
            ExecCallStatus::PluginExecutionError,
        )),
        // client-go treats a plugin that cannot be started as not found.
        AuthError::AuthExecStart(_) => Some((FAILED, ExecCallStatus::PluginNotFoundError)),
        AuthError::AuthExecParse(_)
        | AuthError::AuthExecSerialize(_)
        | AuthError::ExecPluginFailed
        | AuthError::ExecMissingClusterInfo
        | AuthError::MissingCommand => Some((FAILED, ExecCallStatus::ClientInternalError)),
        _ => None,
    }
}

fn auth_error<'e>(cause: &'e (dyn Error + 'static)) -> Option<&'e AuthError> {
    if let Some(kube::Error::Auth(error)) = cause.downcast_ref() {
        return Some(error);
    }
    cause.downcast_ref()
}

/// Reports the result of building a client with an exec plugin.
pub(crate) fn report_built<T>(has_plugin: bool, result: &Result<T, kube::Error>, hooks: &Hooks) {
    if !has_plugin {
        return;
    }
    match result {
        Ok(_) => hooks
            .exec_plugin_calls
            .increment(0, ExecCallStatus::NoError),
        Err(error) => {
            if let Some((code, status)) = call_of(error) {
                hooks.exec_plugin_calls.increment(code, status);
            }
        }
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").finish_non_exhaustive()
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    #[test]
    fn the_earliest_expiry_and_the_age_of_rotated_certificates_are_reported() {
        let reported = Arc::new(Mutex::new((None, Vec::new())));
        let (expiry, ages) = (Arc::clone(&reported), Arc::clone(&reported));
        let hooks = Hooks::default()
            .with_client_cert_expiry(move |at: Option<SystemTime>| expiry.lock().0 = at)
            .with_client_cert_rotation_age(move |age| ages.lock().1.push(age));
        let certificates = Certificates::new(&hooks);
        let start = SystemTime::UNIX_EPOCH;
        let first = certificates.add(start, start + 2 * HOUR);
        let second = certificates.add(start, start + HOUR);
        assert_eq!(reported.lock().0, Some(start + HOUR));
        second.replace(start + HOUR, start + 9 * HOUR, start + HOUR);
        assert_eq!(reported.lock().0, Some(start + 2 * HOUR));
        // The clock was set back.
        second.replace(start + HOUR, start + 9 * HOUR, start);
        assert_eq!(reported.lock().1, [HOUR, Duration::ZERO]);
        drop(first);
        assert_eq!(reported.lock().0, Some(start + 9 * HOUR));
        drop(second);
        assert_eq!(reported.lock().0, None);
    }

    #[test]
    fn the_plugin_call_behind_an_error_is_found() {
        let call = |error: AuthError| call_of(&kube::Error::Auth(error));
        for kind in [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied] {
            assert_eq!(
                call(AuthError::AuthExecStart(kind.into())),
                Some((1, ExecCallStatus::PluginNotFoundError))
            );
        }
        assert_eq!(
            call_of(&AuthError::ExecPluginFailed),
            Some((1, ExecCallStatus::ClientInternalError))
        );
        assert_eq!(call(AuthError::UnrefreshableTokenResponse), None);
        assert_eq!(call_of(&io::Error::other("else")), None);
    }
}
