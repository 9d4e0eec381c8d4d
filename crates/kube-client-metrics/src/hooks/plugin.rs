//! Hooks of credentials: exec plugins and client certificates.

use std::time::{Duration, SystemTime};

use super::hook;

hook! {
    /// Calls of an exec plugin. client-go: `ExecPluginCalls`.
    ExecPluginCalls::increment(exit_code: i32, status: ExecCallStatus)
}

hook! {
    /// Checks of an exec plugin against the policy. client-go: `ExecPluginPolicyCalls`.
    ExecPluginPolicyCalls::increment(verdict: PolicyVerdict)
}

hook! {
    /// The earliest expiry of the client certificates; `None` while there is none. client-go:
    /// `ClientCertExpiry`.
    ClientCertExpiry::set(expiry: Option<SystemTime>)
}

hook! {
    /// The age of a client certificate when it was rotated. client-go: `ClientCertRotationAge`.
    ClientCertRotationAge::observe(age: Duration)
}

/// The result of a call of an exec plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// The decision of the plugin policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "they are named like what they mean")]
pub enum PolicyVerdict {
    Allowed,
    Denied,
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

impl PolicyVerdict {
    /// Returns the label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
        }
    }
}
