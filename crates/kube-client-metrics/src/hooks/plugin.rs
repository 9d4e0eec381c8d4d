//! Hooks of credentials: exec plugins and client certificates.

use std::time::{Duration, SystemTime};

use super::hook;

hook! {
    /// Calls of an exec plugin. client-go: `ExecPluginCalls`.
    exec_plugin_calls: ExecPluginCalls::increment(exit_code: i32, status: ExecCallStatus)
}

hook! {
    /// The earliest expiry of the client certificates; `None` while there is none. client-go:
    /// `ClientCertExpiry`.
    client_cert_expiry: ClientCertExpiry::set(expiry: Option<SystemTime>)
}

hook! {
    /// The age of a client certificate when it was rotated. client-go: `ClientCertRotationAge`.
    client_cert_rotation_age: ClientCertRotationAge::observe(age: Duration)
}

/// The result of a call of an exec plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExecCallStatus {
    /// The plugin returned credentials.
    NoError,
    /// The plugin failed.
    PluginExecutionError,
    /// The plugin was not found.
    PluginNotFoundError,
    /// The client could not run the plugin or parse its output.
    ClientInternalError,
}

impl ExecCallStatus {
    /// Returns the label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoError => "no_error",
            Self::PluginExecutionError => "plugin_execution_error",
            Self::PluginNotFoundError => "plugin_not_found_error",
            Self::ClientInternalError => "client_internal_error",
        }
    }
}
