//! Flags that every benchmark has.

use std::path::PathBuf;

use clap::Args;

/// Flags that every benchmark has
#[derive(Debug, Clone, Args)]
pub struct RunFlags {
    /// Smaller and with fewer repeats: to see whether it works and where things stand
    #[arg(long)]
    pub quick: bool,

    /// Measurements of each contender, in turns [default: 5, with --quick 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeats: Option<u32>,

    /// Where the result is written [default: bench/results]
    #[arg(long, value_name = "FOLDER")]
    pub results: Option<PathBuf>,
}

impl RunFlags {
    /// How often to measure, where the benchmark's own numbers are these.
    pub fn repeats_or(&self, full: usize, quick: usize) -> usize {
        let default = if self.quick { quick } else { full };
        self.repeats
            .map_or(default, |wanted| usize::try_from(wanted).unwrap_or(default))
    }

    /// One value for a full run, another for a quick one.
    pub fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}
