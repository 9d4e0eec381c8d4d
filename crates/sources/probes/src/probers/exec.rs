//! `exec`: a command. Off unless [`Allow::exec`](crate::Allow) says otherwise.

use regex::bytes::Regex;

/// The settings of `exec`.
#[derive(Debug, Clone, Default)]
pub struct ExecSettings {
    /// The program and its arguments. There is no shell. The target is in the environment as
    /// `PROBE_TARGET`.
    pub command: Vec<String>,
    /// Added to the environment, which is otherwise empty but for `PATH`.
    pub environment: Vec<(String, String)>,
    /// Exit codes of success; only 0 if empty.
    pub valid_exit_codes: Vec<i32>,
    /// The standard output must match all of these.
    pub fail_if_output_not_matches_regexp: Vec<Regex>,
    /// The standard output must match none of these.
    pub fail_if_output_matches_regexp: Vec<Regex>,
}
