//! Shell completions, generated from the command definition.

use std::io::Write;

pub use clap_complete::Shell;

/// Writes the completion script of `command` for `shell`.
pub fn write_completion(
    shell: Shell,
    mut command: clap::Command,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    out.write_all(&script)?;
    out.flush()
}
