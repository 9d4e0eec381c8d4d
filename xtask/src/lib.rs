//! Code that the project's own commands share: running programs as timed steps, counting tests, and
//! the cache.
#![expect(
    clippy::print_stdout,
    reason = "the output of a command-line tool is its product"
)]

pub mod cache;
pub mod step;
pub mod totals;
