//! Parses log filters, more strictly than `tracing` does.

use std::fmt;
use std::str::FromStr;

use tracing_subscriber::EnvFilter;

use crate::TelemetryError;

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// A log filter: `level` and `target=level` directives, separated by commas.
///
/// `target` may name a span and its fields too: `kubevitals_scrape[scrape{node=n17}]=debug` shows
/// the debug lines of one node only. It may name one field; a comma always ends the directive. A
/// bare number is a Kubernetes verbosity, see [`LogFilter::from_verbosity`].
///
/// A bare word that is not a level is rejected. As a target, which is how `tracing` would parse it,
/// a mistyped `debgu` would silence every log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilter(String);

impl LogFilter {
    /// The maximum length in bytes: a filter may come over the network.
    pub const MAX_LENGTH: usize = 1024;

    /// Converts `-v N` of Kubernetes components to a filter.
    ///
    /// Dependencies stay at `info` up to 7: their traces are long and may quote requests.
    pub fn from_verbosity(verbosity: u32) -> Self {
        Self(String::from(match verbosity {
            0..=3 => "info",
            4..=5 => "info,kubevitals=debug",
            6..=7 => "info,kubevitals=trace",
            _ => "debug,kubevitals=trace",
        }))
    }

    /// Returns the filter as it was given, without blanks.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn compile(&self) -> Result<EnvFilter, TelemetryError> {
        // Field values are compared literally: a regex from the network could be made slow.
        EnvFilter::builder()
            .with_regex(false)
            .parse(&self.0)
            .map_err(|source| TelemetryError::BadLogFilter {
                filter: self.0.clone(),
                source,
            })
    }
}

impl Default for LogFilter {
    fn default() -> Self {
        Self(String::from("info"))
    }
}

impl FromStr for LogFilter {
    type Err = TelemetryError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > Self::MAX_LENGTH {
            return Err(TelemetryError::LongLogFilter {
                length: text.len(),
                limit: Self::MAX_LENGTH,
            });
        }
        if let Ok(verbosity) = text.trim().parse() {
            return Ok(Self::from_verbosity(verbosity));
        }
        let directives: Vec<&str> = text
            .split(',')
            .map(str::trim)
            .filter(|directive| !directive.is_empty())
            .collect();
        if directives.is_empty() {
            return Err(TelemetryError::EmptyLogFilter);
        }
        if let Some(bad) = directives.iter().find(|directive| !is_directive(directive)) {
            return Err(TelemetryError::BadLogDirective {
                directive: (*bad).to_owned(),
            });
        }
        let filter = Self(directives.join(","));
        filter.compile()?;
        Ok(filter)
    }
}

impl fmt::Display for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_directive(directive: &str) -> bool {
    match directive.rsplit_once('=') {
        None => is_level(directive),
        Some((target, level)) => !target.is_empty() && is_level(level),
    }
}

fn is_level(word: &str) -> bool {
    LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn levels_targets_spans_and_verbosities_parse() {
        for (text, want) in [
            ("info", "info"),
            ("WARN", "WARN"),
            (" info , kubevitals=debug ,", "info,kubevitals=debug"),
            (
                "kubevitals_scrape[scrape{node=n17}]=debug",
                "kubevitals_scrape[scrape{node=n17}]=debug",
            ),
            ("0", "info"),
            ("2", "info"),
            ("4", "info,kubevitals=debug"),
            ("6", "info,kubevitals=trace"),
            ("10", "debug,kubevitals=trace"),
        ] {
            assert_eq!(text.parse::<LogFilter>().unwrap().as_str(), want, "{text}");
        }
    }

    #[test]
    fn errors_name_the_directive() {
        let message = |text: &str| text.parse::<LogFilter>().unwrap_err().to_string();
        insta::assert_snapshot!(
            [
                message(""),
                message(" , "),
                message("info,debgu"),
                message("kubevitals=loud"),
                message("=debug"),
                message("kubevitals=3"),
                message(&"x".repeat(2000))
            ]
            .join("\n")
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_parsed_filter_parses_as_itself(text in "[a-z0-9=,\\[\\]{}\":/\u{e9} -]{0,40}|\\PC{0,40}") {
            if let Ok(filter) = text.parse::<LogFilter>() {
                prop_assert_eq!(filter.as_str().parse::<LogFilter>().unwrap(), filter);
            }
        }
    }
}
