//! The command line, signals and exit codes.
//!
//! Settings come from four layers; the first that sets a value wins:
//!
//! 1. the flag, `--metric-resolution=15s`
//! 2. the environment, `KUBEVITALS_METRIC_RESOLUTION=15s`
//! 3. the configuration file, `metric-resolution: 15s`
//! 4. the built-in default
//!
//! A setting has the same name in all of them. [`parse`] merges the layers before clap sees them,
//! so that clap validates every layer, and an error names the layer of the invalid value.
//!
//! [`supervise`] runs a role until it ends or a signal arrives and drains it within a grace period;
//! [`exit_code`] turns the result into the exit code of the process.

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
pub use exit::{
    EXIT_CHECK_FAILED, EXIT_FAILURE, EXIT_NO_VERDICT, EXIT_USAGE, ResultExt, RunError, exit_code,
};
pub use file::{MAX_CONFIG_BYTES, check_config_text};
pub use layers::{ENV_PREFIX, Input, env_name, parse};
pub use shutdown::{
    Ending, Shutdown, ShutdownTrigger, Signal, forward_signals, shutdown_channel, supervise,
};
