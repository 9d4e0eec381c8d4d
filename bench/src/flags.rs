//! Flags of every benchmark.

use std::path::PathBuf;

use clap::Args;

/// Flags of every benchmark
#[derive(Debug, Clone, Args)]
pub struct RunFlags {
    /// Smaller and with fewer repeats
    #[arg(long)]
    pub quick: bool,

    /// Measurements per contender [default: 5, with --quick 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeats: Option<u32>,

    /// Folder for results [default: bench/results]
    #[arg(long, value_name = "FOLDER")]
    pub results: Option<PathBuf>,
}

impl RunFlags {
    /// Returns the number of repeats, by default those of a full or of a quick run.
    pub fn repeats_or(&self, full: usize, quick: usize) -> usize {
        let default = if self.quick { quick } else { full };
        self.repeats
            .map_or(default, |wanted| usize::try_from(wanted).unwrap_or(default))
    }

    /// Returns one value for a full run, another for a quick one.
    pub fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}
