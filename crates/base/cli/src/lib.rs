//! The command line, and the life of a process around it.
//!
//! Settings come from four places, and the first that has one wins:
//!
//! 1. the flag, `--metric-resolution=15s`
//! 2. the environment, `KUBEVITALS_METRIC_RESOLUTION=15s`
//! 3. the configuration file, `metric-resolution: 15s`
//! 4. the built-in default
//!
//! The name is the same in all of them. [`parse`] merges the layers before clap sees them, so every
//! rule that clap knows holds for every layer, and an error says which layer the bad value came
//! from.
//!
//! [`supervise`] runs a role until it ends or a signal arrives, drains it for a bounded time, and
//! [`exit_code`] turns what happened into the process's exit code.

mod completion;
mod error;
mod exit;
mod file;
pub mod flags;
mod layers;
mod shutdown;
mod suggest;

pub use completion::{Shell, write_completion};
pub use error::{CliError, InvalidSetting, error_chain};
pub use exit::{EXIT_FAILURE, EXIT_USAGE, RunError, exit_code};
pub use file::{MAX_CONFIG_BYTES, check_config_text};
pub use layers::{ENV_PREFIX, Input, env_name, parse};
pub use shutdown::{
    Ending, Shutdown, ShutdownTrigger, Signal, forward_signals, shutdown_channel, supervise,
};
