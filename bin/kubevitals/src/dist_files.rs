//! Files of a release that are generated from the command line: man pages and completions.
//!
//! They describe the shipped program, which has no simulated cluster. `cargo xtask dist` runs this
//! in a build with all features, so that the shipped program does not carry the generator.

use std::io;
use std::path::Path;

use clap::{Command, CommandFactory};
use kubevitals_cli::{Shell, write_completion};

use crate::args::{Args, examples};

/// Commands that the shipped program does not have.
const NOT_SHIPPED: [&str; 3] = ["demo", "sim", "dist-files"];

/// Completions, under the names by which shells find them.
const COMPLETIONS: [(&str, Shell); 3] = [
    ("kubevitals.bash", Shell::Bash),
    ("_kubevitals", Shell::Zsh),
    ("kubevitals.fish", Shell::Fish),
];

/// Writes `man/*.1` and `completions/*`.
pub(crate) fn write(folder: &Path) -> io::Result<()> {
    let shipped = shipped();
    let man = folder.join("man");
    std::fs::create_dir_all(&man)?;
    clap_mangen::generate_to(shipped.clone(), &man)?;
    let completions = folder.join("completions");
    std::fs::create_dir_all(&completions)?;
    for (name, shell) in COMPLETIONS {
        let mut script = Vec::new();
        write_completion(shell, shipped.clone(), &mut script)?;
        std::fs::write(completions.join(name), script)?;
    }
    Ok(())
}

/// Returns the command line of the shipped program: that of this one without some commands, which
/// clap cannot remove.
fn shipped() -> Command {
    let all = Args::command();
    let commands = all.get_subcommands();
    let shipped = commands.filter(|command| !NOT_SHIPPED.contains(&command.get_name()));
    let mut command = Command::new(all.get_name().to_owned())
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .subcommand_required(true)
        .after_help(examples(false))
        .args(all.get_arguments().cloned())
        .subcommands(shipped.cloned());
    if let Some(about) = all.get_about() {
        command = command.about(about.clone());
    }
    command
}
