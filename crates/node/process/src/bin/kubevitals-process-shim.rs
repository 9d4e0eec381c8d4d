//! The shim as a program of its own, for tests. The shipped program has it as a subcommand.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args();
    let program: Vec<String> = args.by_ref().take(1).collect();
    let args: Vec<String> = args.collect();
    kubevitals_process::shim::main(&program, &args)
}
