//! The public face of the crate, held against vectors from Go and against properties.

#![expect(clippy::panic, reason = "helpers of tests are not recognised as tests")]

mod amount;
mod duration;
mod key;
mod proxy;
mod quantity;
mod timestamp;
mod usage;
mod vectors;

use proptest::test_runner::Config;

/// Enough cases to find a slip, few enough for every test run.
fn config() -> Config {
    Config {
        cases: 512,
        failure_persistence: None,
        ..Config::default()
    }
}
