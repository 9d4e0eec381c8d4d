//! Hooks of credentials: exec plugins and client certificates.

use std::time::{Duration, SystemTime};

use super::hook;

hook! {
    /// Each run of an exec plugin. client-go: `ExecPluginCalls`.
    ExecPluginCalls::increment(exit_code: i32, status: ExecCallStatus)
}

hook! {
    /// Each check of an exec plugin against the policy. client-go: `ExecPluginPolicyCalls`.
    ExecPluginPolicyCalls::increment(verdict: PolicyVerdict)
}

hook! {
    /// When the first of the client certificates expires; `None` while there is none. client-go:
    /// `ClientCertExpiry`.
    ClientCertExpiry::set(expiry: Option<SystemTime>)
}

hook! {
    /// How old a client certificate was when it was replaced. client-go: `ClientCertRotationAge`.
    ClientCertRotationAge::observe(age: Duration)
}

/// How a run of an exec plugin went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExecCallStatus {
    /// It gave credentials.
    NoError,
    /// It ran and failed.
    PluginExecutionError,
    /// There is no such program.
    PluginNotFoundError,
    /// The client could not run it or not read its answer.
    ClientInternalError,
}

/// Whether the policy permits a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "they are named like what they mean")]
pub enum PolicyVerdict {
    Allowed,
    Denied,
}

impl ExecCallStatus {
    /// The label value.
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
    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
        }
    }
}
