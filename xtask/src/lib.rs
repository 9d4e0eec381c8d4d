//! Code that the project's own commands and tests share: running programs as timed steps, counting
//! tests, the cache, reading documents.
#![expect(
    clippy::print_stdout,
    reason = "the output of a command-line tool is its product"
)]

pub mod cache;
pub mod markdown;
pub mod step;
pub mod totals;
