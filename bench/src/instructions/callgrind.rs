//! Running a program under valgrind's callgrind, and reading its output.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use super::COUNTED;
use crate::BenchError;

/// What was counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Profile {
    /// All instructions.
    pub total: u64,
    /// Those of each function itself, without what it calls. Who is inlined counts as part of its
    /// caller.
    pub own: BTreeMap<String, u64>,
}

/// Runs a program under callgrind, which writes to the file `out`. Only what
/// [`counted_by_callgrind`](super::counted_by_callgrind) does is counted.
pub fn run<A: AsRef<OsStr>>(program: &Path, args: &[A], out: &Path) -> Result<Profile, BenchError> {
    let mut named = std::ffi::OsString::from("--callgrind-out-file=");
    named.push(out);
    let mut command = Command::new("valgrind");
    command
        // The size of the environment moves the stack, and with it how copies are aligned.
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
    let asked = Command::new("valgrind").arg("--version").output();
    let output = asked.map_err(|_| BenchError::NoValgrind)?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl Profile {
    /// Reads a file in callgrind's format.
    pub fn read(text: &str) -> Result<Self, BenchError> {
        let mut names: BTreeMap<&str, &str> = BTreeMap::new();
        let mut profile = Self::default();
        let mut function = "";
        let mut of_a_call = false;
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("fn=") {
                function = full_name(name, &mut names);
            } else if let Some(name) = line.strip_prefix("cfn=") {
                // Named here for the first time, perhaps.
                full_name(name, &mut names);
            } else if line.starts_with("calls=") {
                // The line after it is what the call took, which the functions that were called
                // count themselves.
                of_a_call = true;
            } else if let Some(cost) = cost(line)
                && !std::mem::take(&mut of_a_call)
            {
                *profile.own.entry(readable(function)).or_default() += cost;
            }
        }
        profile.total = profile.own.values().sum();
        let told = text
            .lines()
            .find_map(|line| line.strip_prefix("totals:")?.trim().parse().ok());
        if profile.total == 0 || told != Some(profile.total) {
            return Err(BenchError::Callgrind {
                problem: format!(
                    "its file holds {} instructions and claims {told:?}",
                    profile.total
                ),
            });
        }
        Ok(profile)
    }

    /// The functions that took most, and how much of all they took.
    pub fn top(&self, most: usize) -> Vec<(&str, f64)> {
        let mut own: Vec<(&str, u64)> = self
            .own
            .iter()
            .map(|(name, cost)| (name.as_str(), *cost))
            .collect();
        own.sort_by_key(|(name, cost)| (std::cmp::Reverse(*cost), *name));
        own.truncate(most);
        #[expect(clippy::cast_precision_loss, reason = "a share, for people")]
        let share = |cost: u64| cost as f64 / self.total as f64;
        own.into_iter()
            .map(|(name, cost)| (name, share(cost)))
            .collect()
    }
}

/// A name is written once, as `(12) name`, and is `(12)` from then on.
fn full_name<'t>(name: &'t str, names: &mut BTreeMap<&'t str, &'t str>) -> &'t str {
    match name.split_once(' ') {
        Some((number, name)) => {
            names.insert(number, name);
            name
        }
        None => names.get(name).copied().unwrap_or(name),
    }
}

/// The cost in a line such as `+3 12`: a place, absolute or relative or `*`, and a number.
fn cost(line: &str) -> Option<u64> {
    let is_place = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '*');
    let (place, cost) = line.split_once(' ')?;
    (!place.is_empty() && place.chars().all(is_place)).then(|| cost.parse().ok())?
}

/// A name without the hash at its end, which changes with every build, and without where callgrind
/// found it.
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
    fn what_a_call_takes_is_counted_once() {
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
    fn a_file_that_was_not_understood_is_no_result() {
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
    fn a_name_loses_only_its_hash() {
        assert_eq!(readable("a::b::h0123456789abcdef"), "a::b");
        assert_eq!(readable("a::b::h0123456789abcdef'2"), "a::b");
        assert_eq!(readable("a::hash"), "a::hash");
        assert_eq!(
            readable("__memcpy_avx_unaligned_erms"),
            "__memcpy_avx_unaligned_erms"
        );
    }
}
