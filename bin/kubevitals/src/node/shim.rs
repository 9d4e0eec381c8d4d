//! The hidden command that is the parent of a container's process.
//!
//! It is not parsed with the other commands: there is one such process for each container, and it
//! needs neither settings nor logs nor a runtime.

use std::io;
use std::process::ExitCode;

use kubevitals_cli::Input;

/// The hidden command.
const NAME: &str = "process-shim";

/// Runs the shim if that is what the process was started for.
pub fn run(input: &Input) -> Option<ExitCode> {
    let text = |arg: &std::ffi::OsString| arg.to_str().map(str::to_owned);
    let args: Option<Vec<String>> = input.args.iter().map(text).collect();
    match args?.split_at_checked(2)? {
        (program, args) if program.last().is_some_and(|name| name == NAME) => {
            Some(kubevitals_process::shim::main(program, args))
        }
        _ => None,
    }
}

/// The command line of the shim, without its arguments.
pub(super) fn command() -> io::Result<Vec<String>> {
    let program = std::env::current_exe()?;
    let program = program.into_os_string().into_string();
    let program = program.map_err(|_| io::Error::other("the path is not UTF-8"))?;
    Ok(vec![program, NAME.to_owned()])
}
