//! Runs a program under valgrind's callgrind, and parses its output.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use super::COUNTED;
use crate::BenchError;

/// Counted instructions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Profile {
    /// All instructions.
    pub total: u64,
    /// Those of each function itself, without its callees. An inlined function counts as part of
    /// its caller.
    pub own: BTreeMap<String, u64>,
}

/// Runs a program under callgrind, which writes to the file `out`. Only
/// [`counted_by_callgrind`](super::counted_by_callgrind) and its callees are counted.
pub fn run<A: AsRef<OsStr>>(program: &Path, args: &[A], out: &Path) -> Result<Profile, BenchError> {
    let mut named = std::ffi::OsString::from("--callgrind-out-file=");
    named.push(out);
    let mut command = Command::new("valgrind");
    command
        // The size of the environment shifts the stack, and with it the alignment of copies.
        .env_clear()
        .arg("--tool=callgrind")
        .arg(format!("--toggle-collect={COUNTED}"))
        .arg(named)
        .arg(program)
        .args(args);
    let output = command.output().map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => BenchError::NoValgrind,
        _ => BenchError::Start {
            program: "valgrind".to_owned(),
            source,
        },
    })?;
    if !output.status.success() {
        return Err(BenchError::Callgrind {
            problem: format!(
                "it ended with {}: {}",
                output.status,
                String::from_utf8_lossy(&output.stderr).trim_end()
            ),
        });
    }
    let text = std::fs::read_to_string(out).map_err(BenchError::file("read", out))?;
    Profile::read(&text)
}

/// The version of valgrind.
pub fn version() -> Result<String, BenchError> {
    let output = Command::new("valgrind").arg("--version").output();
    let output = output.map_err(|_| BenchError::NoValgrind)?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl Profile {
    /// Parses a file in callgrind's format.
    pub fn read(text: &str) -> Result<Self, BenchError> {
        let mut names: BTreeMap<&str, &str> = BTreeMap::new();
        let mut profile = Self::default();
        let mut function = "";
        let mut of_a_call = false;
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("fn=") {
                function = full_name(name, &mut names);
            } else if let Some(name) = line.strip_prefix("cfn=") {
                // Possibly the first occurrence of the name.
                full_name(name, &mut names);
            } else if line.starts_with("calls=") {
                // The next line is the inclusive cost of the call, which the callees count
                // themselves.
                of_a_call = true;
            } else if let Some(cost) = cost(line)
                && !std::mem::take(&mut of_a_call)
            {
                *profile.own.entry(readable(function)).or_default() += cost;
            }
        }
        profile.total = profile.own.values().sum();
        let claimed = text
            .lines()
            .find_map(|line| line.strip_prefix("totals:")?.trim().parse().ok());
        if profile.total == 0 || claimed != Some(profile.total) {
            return Err(BenchError::Callgrind {
                problem: format!(
                    "its file has {} instructions but a total of {claimed:?}",
                    profile.total
                ),
            });
        }
        Ok(profile)
    }

    /// Returns the most expensive functions, each with its share of the total.
    pub fn top(&self, max: usize) -> Vec<(&str, f64)> {
        let mut own: Vec<(&str, u64)> = self
            .own
            .iter()
            .map(|(name, cost)| (name.as_str(), *cost))
            .collect();
        own.sort_by_key(|(name, cost)| (std::cmp::Reverse(*cost), *name));
        own.truncate(max);
        #[expect(clippy::cast_precision_loss, reason = "a share, for people")]
        let share = |cost: u64| cost as f64 / self.total as f64;
        own.into_iter()
            .map(|(name, cost)| (name, share(cost)))
            .collect()
    }
}

/// Resolves a name, which is written as `(12) name` at first, and as `(12)` from then on.
fn full_name<'t>(name: &'t str, names: &mut BTreeMap<&'t str, &'t str>) -> &'t str {
    match name.split_once(' ') {
        Some((number, name)) => {
            names.insert(number, name);
            name
        }
        None => names.get(name).copied().unwrap_or(name),
    }
}

/// Parses the cost in a line such as `+3 12`: a position, absolute or relative or `*`, and a
/// number.
fn cost(line: &str) -> Option<u64> {
    let is_position = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '*');
    let (position, cost) = line.split_once(' ')?;
    (!position.is_empty() && position.chars().all(is_position)).then(|| cost.parse().ok())?
}

/// Removes the hash at the end of a name, which changes with every build, and callgrind's suffix.
fn readable(name: &str) -> String {
    let name = name.split_once('\'').map_or(name, |(name, _)| name);
    match name.rsplit_once("::h") {
        Some((name, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => {
            name.to_owned()
        }
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "version: 1\ncreator: callgrind-3.19.0\npositions: line\nevents: Ir\n\nfl=(1) a.rs\n\
        fn=(1) a::outer::h0123456789abcdef\n16 10\n+2 5\ncfn=(2) a::inner\ncalls=3 4\n18 60\n* 1\n\n\
        fn=(2)\nfi=(3) b.rs\n7 40\n-2 20\n\ntotals: 76\n";

    #[test]
    fn the_cost_of_a_call_is_counted_once() {
        let profile = Profile::read(FILE).unwrap();
        assert_eq!(profile.total, 76);
        let own: Vec<_> = profile.own.into_iter().collect();
        assert_eq!(
            own,
            [("a::inner".to_owned(), 60), ("a::outer".to_owned(), 16)]
        );
    }

    #[test]
    fn the_most_expensive_come_first() {
        let profile = Profile::read(FILE).unwrap();
        assert_eq!(profile.top(1), [("a::inner", 60.0 / 76.0)]);
    }

    #[test]
    fn a_file_that_cannot_be_parsed_is_an_error() {
        for wrong in [
            "",
            "totals: 0\n",
            "fn=(1) a\n1 2\ntotals: 3\n",
            "fn=(1) a\n1 2\n",
        ] {
            assert!(
                matches!(Profile::read(wrong), Err(BenchError::Callgrind { .. })),
                "{wrong}"
            );
        }
    }

    #[test]
    fn only_the_hash_of_a_name_is_removed() {
        assert_eq!(readable("a::b::h0123456789abcdef"), "a::b");
        assert_eq!(readable("a::b::h0123456789abcdef'2"), "a::b");
        assert_eq!(readable("a::hash"), "a::hash");
        assert_eq!(
            readable("__memcpy_avx_unaligned_erms"),
            "__memcpy_avx_unaligned_erms"
        );
    }
}
