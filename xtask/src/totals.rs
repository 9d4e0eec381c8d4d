//! The number of tests that passed and failed, over all test binaries of a run.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::ops::Add;

use anyhow::{Context, Result, bail};

/// Results of the tests of a run. The test runner prints one line of them per binary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    pub passed: u64,
    pub failed: u64,
    pub skipped: u64,
}

impl Totals {
    /// Copies the output of a test runner to ours until it ends, and adds up its results.
    pub fn read(output: impl Read) -> Result<Self> {
        let mut totals = Self::default();
        for line in BufReader::new(output).lines() {
            let line = line.context("reading the output of the tests")?;
            println!("{line}");
            totals.add_line(&line);
        }
        Ok(totals)
    }

    /// Fails unless the runner succeeded and at least one test ran.
    pub fn check(self, succeeded: bool) -> Result<Self> {
        if !succeeded {
            bail!("the tests failed: {self}");
        }
        if self.passed == 0 {
            bail!("no test matched: nothing was tested");
        }
        Ok(self)
    }

    /// Adds a line of the runner's output, if it is a result: `test result: ok. 3 passed; 0 failed;
    /// 1 ignored; …`.
    fn add_line(&mut self, line: &str) {
        let Some(counts) = line.strip_prefix("test result: ") else {
            return;
        };
        let counts = counts.split_once(". ").map_or(counts, |(_, counts)| counts);
        for part in counts.split(';') {
            let mut words = part.split_whitespace();
            let (Some(Ok(count)), Some(kind)) = (words.next().map(str::parse::<u64>), words.next())
            else {
                continue;
            };
            match kind {
                "passed" => self.passed += count,
                "failed" => self.failed += count,
                "ignored" => self.skipped += count,
                _ => {}
            }
        }
    }
}

impl Add for Totals {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            skipped: self.skipped + other.skipped,
        }
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_all_binaries_add_up() {
        let output = "running 3 tests\n\
            test a ... ok\n\
            test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.14s\n\
            test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s\n\
            test result: nonsense\n";
        let totals = Totals::read(output.as_bytes()).unwrap();
        let expected = Totals {
            passed: 7,
            failed: 2,
            skipped: 1,
        };
        assert_eq!(totals, expected);
        assert_eq!(totals.to_string(), "7 passed, 2 failed, 1 skipped");
        let twice = totals + totals;
        assert_eq!(twice.to_string(), "14 passed, 4 failed, 2 skipped");
    }

    #[test]
    fn a_run_without_any_test_is_a_failure() {
        let passed = Totals {
            passed: 1,
            ..Totals::default()
        };
        assert_eq!(passed.check(true).unwrap(), passed);
        assert!(passed.check(false).is_err());
        assert!(Totals::default().check(true).is_err());
    }
}
