//! Reads the configuration again when its files change, and applies it if it is valid.
//!
//! Files are read at an interval instead of watched: the links of a mounted ConfigMap are swapped
//! below the names that a watch would know.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{Clock, Timestamp};
use parking_lot::Mutex;
use tracing::{info, warn};

use crate::config::files::read_sources;
use crate::config::{Config, Source, TargetSource, Variables};
use crate::context::Allow;
use crate::error::ConfigError;
use crate::executor::ProbeExecutor;
use crate::scheduler::{Applied, Scheduler};

/// What a reloader needs.
pub struct ReloaderOptions {
    pub clock: Clock,
    /// Files and folders; none for the built-in probes alone.
    pub paths: Vec<PathBuf>,
    pub variables: Variables,
    /// The built-in probes that run unless the configuration chooses them.
    pub builtins: Vec<&'static str>,
    pub targets: Arc<dyn TargetSource>,
    pub scheduler: Arc<Scheduler>,
    /// Learns of `denied_addresses`.
    pub executor: Option<Arc<ProbeExecutor>>,
    /// What probes may do; `denied_addresses` of the configuration are added.
    pub allow: Allow,
}

/// Keeps the scheduler's jobs those of the files.
pub struct Reloader {
    options: ReloaderOptions,
    /// Held by one change after another, also while files are read.
    turn: Mutex<()>,
    /// Never held for long: requests read it.
    state: Mutex<State>,
}

/// What came of reading the files again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReloadResult {
    /// The files are the same as before.
    Unchanged,
    Applied(Applied),
    /// The files are not valid; the configuration is still the one before.
    Rejected,
}

/// The state of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReloadStatus {
    /// When the configuration that holds was applied.
    pub applied: Timestamp,
    /// Why the files, as they are now, are not applied.
    pub error: Option<String>,
    /// Number of configurations that were applied, the first included.
    pub successes: u64,
    /// Number of changes that were rejected.
    pub failures: u64,
    /// Number of discovered targets that are not probed: not valid, or too many.
    pub left_out: usize,
}

struct State {
    config: Arc<Config>,
    /// Of the texts that were last looked at, valid or not.
    fingerprint: Option<u64>,
    status: ReloadStatus,
}

impl Reloader {
    /// Reads the files and applies them. The first configuration must be valid. It blocks; call it
    /// inside the runtime.
    pub fn start(options: ReloaderOptions) -> Result<(Self, Applied), ConfigError> {
        let sources = read_sources(&options.paths)?;
        let config = compile(&sources, &options)?;
        let status = ReloadStatus {
            applied: options.clock.now(),
            error: None,
            successes: 1,
            failures: 0,
            left_out: 0,
        };
        let (applied, left_out) = apply(&config, &options);
        let mut state = State {
            config: Arc::new(config),
            fingerprint: Some(fingerprint(&sources)),
            status,
        };
        state.set_left_out(left_out);
        let reloader = Self {
            options,
            turn: Mutex::default(),
            state: Mutex::new(state),
        };
        Ok((reloader, applied))
    }

    /// The configuration that holds.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.state.lock().config)
    }

    pub fn status(&self) -> ReloadStatus {
        self.state.lock().status.clone()
    }

    /// Asks the source of targets again.
    pub fn refresh_targets(&self) -> Applied {
        let _turn = self.turn.lock();
        let (applied, left_out) = apply(&self.config(), &self.options);
        self.state.lock().set_left_out(left_out);
        applied
    }

    /// Reads the files, and applies them if they have changed and are valid. It blocks; call it
    /// inside the runtime.
    pub fn reload(&self) -> ReloadResult {
        let _turn = self.turn.lock();
        let sources = match read_sources(&self.options.paths) {
            Ok(sources) => sources,
            Err(error) => {
                let mut state = self.state.lock();
                state.fingerprint = None;
                return reject(&mut state, &error);
            }
        };
        let fingerprint = fingerprint(&sources);
        if self.state.lock().fingerprint == Some(fingerprint) {
            return ReloadResult::Unchanged;
        }
        let compiled = compile(&sources, &self.options);
        let applied = compiled.as_ref().map(|config| apply(config, &self.options));
        let (applied, left_out) = applied.unwrap_or_default();
        let mut state = self.state.lock();
        state.fingerprint = Some(fingerprint);
        match compiled {
            Ok(config) => state.config = Arc::new(config),
            Err(error) => return reject(&mut state, &error),
        }
        state.set_left_out(left_out);
        state.status.applied = self.options.clock.now();
        state.status.error = None;
        state.status.successes = state.status.successes.saturating_add(1);
        info!(
            added = applied.added,
            kept = applied.kept,
            removed = applied.removed,
            "applied the configuration of probes"
        );
        ReloadResult::Applied(applied)
    }

    /// Reloads at an interval, for ever.
    pub async fn run(self: Arc<Self>, interval: Duration) {
        let runtime = tokio::runtime::Handle::current();
        loop {
            tokio::time::sleep(interval).await;
            let reloader = Arc::clone(&self);
            let runtime = runtime.clone();
            let reload = move || {
                // Tasks of new jobs are spawned.
                let _entered = runtime.enter();
                reloader.reload();
            };
            if let Err(error) = tokio::task::spawn_blocking(reload).await {
                warn!(%error, "could not reload the configuration of probes");
            }
        }
    }
}

fn compile(sources: &[Source], options: &ReloaderOptions) -> Result<Config, ConfigError> {
    let mut config = Config::from_sources(sources, &options.variables)?;
    if !config.chooses_builtins() {
        for name in &options.builtins {
            config.add_builtin(name, &options.variables);
        }
    }
    Ok(config)
}

impl State {
    /// One line of log for each change.
    fn set_left_out(&mut self, left_out: usize) {
        if left_out != self.status.left_out && left_out > 0 {
            warn!(
                targets = left_out,
                "some discovered targets are not probed: not valid, or too many"
            );
        }
        self.status.left_out = left_out;
    }
}

/// Makes the jobs those of a configuration. Also returns how many targets were left out.
fn apply(config: &Config, options: &ReloaderOptions) -> (Applied, usize) {
    if let Some(executor) = &options.executor {
        let mut allow = options.allow.clone();
        allow.denied_addresses.extend(config.denied_addresses());
        executor.set_allow(allow);
    }
    let (jobs, left_out) = config.jobs_and_left_out(&*options.targets);
    (options.scheduler.apply(jobs), left_out)
}

/// Keeps the old configuration. One line of log for each change, not for each look.
fn reject(state: &mut State, error: &ConfigError) -> ReloadResult {
    let error = error.to_string();
    if state.status.error.as_ref() != Some(&error) {
        warn!(%error, "the configuration of probes is not valid, keeping the one before");
        state.status.failures = state.status.failures.saturating_add(1);
        state.status.error = Some(error);
    }
    ReloadResult::Rejected
}

fn fingerprint(sources: &[Source]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for source in sources {
        (&source.name, &source.text).hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests;
