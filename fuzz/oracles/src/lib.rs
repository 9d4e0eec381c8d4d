//! What must hold for every input: one function per fuzz target.
//!
//! Each function takes bytes and panics if something does not hold. The binaries in
//! `fuzz/fuzz_targets` give them to libFuzzer; the test of this crate replays the corpus and a
//! bounded number of mutations of it, so that every target is also an ordinary test.
//!
//! To add a target: a module with a function here, a line in [`TARGETS`], a binary of three lines
//! in `fuzz/fuzz_targets` with its entry in `fuzz/Cargo.toml`, and a seed or two in
//! `fuzz/corpus/<name>`.

mod promtext;
mod watch;

pub use promtext::promtext;
pub use watch::watch_line;

/// A fuzz target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The name of its binary and of its corpus.
    pub name: &'static str,
    /// What must hold.
    pub oracle: fn(&[u8]),
    /// What inputs are made of, for mutations that get past the first byte.
    pub tokens: &'static [&'static [u8]],
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target {
        name: "promtext",
        oracle: promtext,
        tokens: promtext::TOKENS,
    },
    Target {
        name: "watch_line",
        oracle: watch_line,
        tokens: watch::TOKENS,
    },
];
