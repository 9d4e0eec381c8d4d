//! Options of requests: of logs, of sessions and of port-forwards.

use std::time::Duration;

use kubevitals_http::query::Query;
use kubevitals_model::Timestamp;

use crate::provider::{LogOptions, LogStream, StreamOptions};

/// Maximum number of ports of a port-forward.
const MAX_PORTS: usize = 256;
/// Maximum length of a value in an error.
const MAX_SHOWN_CHARS: usize = 64;

/// An option that cannot be used. The response is 400.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid {option}: {reason}")]
pub struct InvalidOption {
    /// The name of the parameter.
    pub option: &'static str,
    pub reason: String,
}

/// Parses the options of `/containerLogs`.
///
/// `tail` is the older name of `tailLines`, where `all` means all lines.
pub fn log_options(query: Query<'_>, now: Timestamp) -> Result<LogOptions, InvalidOption> {
    let tail = query.first("tail").filter(|tail| !tail.is_empty());
    let tail_lines = match tail.as_deref() {
        Some("all") => None,
        Some(tail) => Some(number("tail", tail, 0)?),
        None => number_of(query, "tailLines", 0)?,
    };
    let since_seconds = number_of(query, "sinceSeconds", 1)?;
    let since_time = match query.first("sinceTime") {
        Some(text) => Some(text.parse::<Timestamp>().map_err(|error| InvalidOption {
            option: "sinceTime",
            reason: error.to_string(),
        })?),
        None => None,
    };
    let since = match (since_seconds, since_time) {
        (Some(_), Some(_)) => {
            return Err(invalid(
                "sinceTime",
                "at most one of sinceTime and sinceSeconds may be specified",
            ));
        }
        // What reaches back beyond all time is everything.
        (Some(seconds), None) => now.checked_sub(Duration::from_secs(seconds)),
        (None, time) => time,
    };
    let stream = match query.first("stream").as_deref() {
        None | Some("" | "All") => LogStream::All,
        Some("Stdout") => LogStream::Stdout,
        Some("Stderr") => LogStream::Stderr,
        Some(other) => {
            let shown = shown(other);
            let reason = format!("{shown:?} is not one of All, Stdout, Stderr");
            return Err(InvalidOption {
                option: "stream",
                reason,
            });
        }
    };
    if stream != LogStream::All && tail_lines.is_some() {
        return Err(invalid(
            "stream",
            "tailLines may be specified only with the stream All",
        ));
    }
    Ok(LogOptions {
        follow: flag(query, "follow")?,
        previous: flag(query, "previous")?,
        timestamps: flag(query, "timestamps")?,
        tail_lines,
        limit_bytes: number_of(query, "limitBytes", 1)?,
        since,
        stream,
    })
}

/// Parses the streams of `/exec` and `/attach`. With a terminal there is no standard error, as in
/// the kubelet.
pub fn stream_options(query: Query<'_>) -> Result<StreamOptions, InvalidOption> {
    let is_set = |name| matches!(query.first(name).as_deref(), Some("1" | "true"));
    let tty = is_set("tty");
    let options = StreamOptions {
        stdin: is_set("input"),
        stdout: is_set("output"),
        stderr: is_set("error") && !tty,
        tty,
    };
    if !options.stdin && !options.stdout && !options.stderr {
        return Err(invalid(
            "streams",
            "you must specify at least 1 of stdin, stdout, stderr",
        ));
    }
    Ok(options)
}

/// Parses the command of `/exec`: the program and its arguments.
pub fn command(query: Query<'_>) -> Result<Vec<String>, InvalidOption> {
    let command: Vec<String> = query.all("command").map(Into::into).collect();
    match command.first() {
        Some(program) if !program.is_empty() => Ok(command),
        _ => Err(invalid("command", "you must specify the program to run")),
    }
}

/// Parses the command of `/run`: one text, which is split at blanks, as in the kubelet.
pub fn run_command(query: Query<'_>) -> Result<Vec<String>, InvalidOption> {
    let text = query.first("cmd").unwrap_or_default();
    let command: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    if command.is_empty() {
        return Err(invalid("cmd", "you must specify the program to run"));
    }
    Ok(command)
}

/// Parses the ports of `/portForward`: lists of numbers, which only a WebSocket needs.
pub fn ports(query: Query<'_>) -> Result<Vec<u16>, InvalidOption> {
    let mut ports = Vec::new();
    for list in query.all("port").chain(query.all("ports")) {
        for text in list.split(',') {
            let port = text.parse::<u16>().ok().filter(|port| *port > 0);
            let Some(port) = port else {
                let shown = shown(text);
                return Err(InvalidOption {
                    option: "port",
                    reason: format!("{shown:?} is not a number from 1 to 65535"),
                });
            };
            if ports.len() >= MAX_PORTS {
                let reason = format!("there are more than {MAX_PORTS}");
                return Err(InvalidOption {
                    option: "port",
                    reason,
                });
            }
            ports.push(port);
        }
    }
    Ok(ports)
}

/// A switch: Go's booleans, and a name without a value for `true`.
fn flag(query: Query<'_>, name: &'static str) -> Result<bool, InvalidOption> {
    let Some(value) = query.first(name) else {
        return Ok(false);
    };
    match &*value {
        "" | "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        other => {
            let shown = shown(other);
            Err(InvalidOption {
                option: name,
                reason: format!("{shown:?} is neither true nor false"),
            })
        }
    }
}

fn number_of(query: Query<'_>, name: &'static str, min: u64) -> Result<Option<u64>, InvalidOption> {
    query
        .first(name)
        .map(|text| number(name, &text, min))
        .transpose()
}

fn number(option: &'static str, text: &str, min: u64) -> Result<u64, InvalidOption> {
    let number = text.parse::<i64>().ok();
    let number = number.and_then(|number| u64::try_from(number).ok());
    number
        .filter(|number| *number >= min)
        .ok_or_else(|| InvalidOption {
            option,
            reason: format!("{:?} is not a whole number of at least {min}", shown(text)),
        })
}

fn invalid(option: &'static str, reason: &str) -> InvalidOption {
    InvalidOption {
        option,
        reason: reason.to_owned(),
    }
}

fn shown(text: &str) -> String {
    text.chars().take(MAX_SHOWN_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp::from_unix_millis(1_794_773_483_261);

    fn logs(query: &str) -> Result<LogOptions, String> {
        log_options(Query::new(Some(query)), NOW).map_err(|error| error.to_string())
    }

    #[test]
    fn log_options_are_those_of_a_kubelet() {
        assert_eq!(logs(""), Ok(LogOptions::default()));
        let all = "follow=true&previous=1&timestamps=&tailLines=0&limitBytes=7&sinceSeconds=60";
        let expected = LogOptions {
            follow: true,
            previous: true,
            timestamps: true,
            tail_lines: Some(0),
            limit_bytes: Some(7),
            since: Some(Timestamp::from_unix_millis(1_794_773_423_261)),
            stream: LogStream::All,
        };
        assert_eq!(logs(all), Ok(expected));
        let time = logs("sinceTime=2026-11-15T20:11:21%2B01:00&stream=Stderr&follow=false");
        let time = time.unwrap();
        assert_eq!(time.since, Some("2026-11-15T19:11:21Z".parse().unwrap()));
        assert_eq!((time.stream, time.follow), (LogStream::Stderr, false));
        assert_eq!(logs("tail=all&tailLines=3").unwrap().tail_lines, None);
        assert_eq!(logs("tail=5").unwrap().tail_lines, Some(5));
        assert_eq!(
            logs("tailLines=%2B5").unwrap().tail_lines,
            Some(5),
            "as in Go"
        );
        let ages = format!("sinceSeconds={}", i64::MAX);
        assert_eq!(logs(&ages).unwrap().since, None);
    }

    #[test]
    fn bad_log_options_are_named() {
        for (query, error) in [
            (
                "tailLines=-1",
                "invalid tailLines: \"-1\" is not a whole number of at least 0",
            ),
            (
                "tailLines=",
                "invalid tailLines: \"\" is not a whole number of at least 0",
            ),
            (
                "tail=x",
                "invalid tail: \"x\" is not a whole number of at least 0",
            ),
            (
                "limitBytes=0",
                "invalid limitBytes: \"0\" is not a whole number of at least 1",
            ),
            (
                "sinceSeconds=0",
                "invalid sinceSeconds: \"0\" is not a whole number of at least 1",
            ),
            (
                "sinceSeconds=1.5",
                "invalid sinceSeconds: \"1.5\" is not a whole number of at least 1",
            ),
            (
                "sinceSeconds=9223372036854775808",
                "invalid sinceSeconds: \"9223372036854775808\" is not a whole number of at least 1",
            ),
            (
                "sinceTime=now",
                "invalid sinceTime: invalid time \"now\"; write it as in 2006-01-02T15:04:05Z",
            ),
            (
                "sinceTime=2026-11-15T20:11:21Z&sinceSeconds=1",
                "invalid sinceTime: at most one of sinceTime and sinceSeconds may be specified",
            ),
            (
                "follow=maybe",
                "invalid follow: \"maybe\" is neither true nor false",
            ),
            (
                "stream=stdout",
                "invalid stream: \"stdout\" is not one of All, Stdout, Stderr",
            ),
            (
                "stream=Stdout&tailLines=1",
                "invalid stream: tailLines may be specified only with the stream All",
            ),
        ] {
            assert_eq!(logs(query), Err(error.to_owned()), "{query}");
        }
        let long = logs(&format!("follow={}", "x".repeat(10_000))).unwrap_err();
        assert!(long.len() < 200, "{long}");
    }

    #[test]
    fn a_terminal_has_no_standard_error() {
        let streams = |query| stream_options(Query::new(Some(query)));
        let options = streams("input=1&output=1&error=1&tty=1").unwrap();
        let expected = StreamOptions {
            stdin: true,
            stdout: true,
            stderr: false,
            tty: true,
        };
        assert_eq!(options, expected);
        assert!(streams("error=1").unwrap().stderr);
        assert!(streams("output=true").unwrap().stdout);
        for none in ["", "tty=1", "tty=1&error=1", "output=0", "stdin=1"] {
            assert!(streams(none).is_err(), "{none}");
        }
    }

    #[test]
    fn commands_keep_their_arguments() {
        let of = |query| command(Query::new(Some(query)));
        assert_eq!(
            of("command=sh&command=-c&command=a+b%26c").unwrap(),
            ["sh", "-c", "a b&c"]
        );
        assert_eq!(of("command=sh&command=").unwrap(), ["sh", ""]);
        assert!(of("").is_err() && of("command=").is_err());
        let run = |query| run_command(Query::new(Some(query)));
        assert_eq!(run("cmd=ls+-l%20/").unwrap(), ["ls", "-l", "/"]);
        assert!(run("cmd=+").is_err());
    }

    #[test]
    fn ports_are_numbers() {
        let of = |query: &str| ports(Query::new(Some(query)));
        assert_eq!(of("port=80&port=443,8080").unwrap(), [80, 443, 8080]);
        assert_eq!(of("ports=1").unwrap(), [1]);
        assert!(of("").unwrap().is_empty());
        for bad in [
            "port=",
            "port=0",
            "port=65536",
            "port=-1",
            "port=http",
            "port=1,",
        ] {
            assert!(of(bad).is_err(), "{bad}");
        }
        assert!(of(&format!("port={}", vec!["1"; 257].join(","))).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn log_options_are_restored(
            follow: bool, previous: bool, timestamps: bool,
            tail in proptest::option::of(0..=i64::MAX),
            limit in proptest::option::of(1..=i64::MAX),
            since in proptest::option::of(0_i64..4_000_000_000_000),
        ) {
            let mut query = format!("follow={follow}&previous={previous}&timestamps={timestamps}");
            for (name, value) in [("tailLines", tail), ("limitBytes", limit)] {
                if let Some(value) = value {
                    write!(query, "&{name}={value}").unwrap();
                }
            }
            let since = since.map(Timestamp::from_unix_millis);
            if let Some(since) = since {
                write!(query, "&sinceTime={}", since.rfc3339_millis()).unwrap();
            }
            let expected = LogOptions {
                follow,
                previous,
                timestamps,
                tail_lines: tail.map(i64::unsigned_abs),
                limit_bytes: limit.map(i64::unsigned_abs),
                since,
                stream: LogStream::All,
            };
            prop_assert_eq!(logs(&query), Ok(expected));
        }

        #[test]
        fn any_query_is_parsed(query in "\\PC{0,60}|((tail|tailLines|since(Time|Seconds)|follow|port|command|stream)=[%0-9A-Za-z:+-]{0,12}&){0,5}") {
            let query = Query::new(Some(&query));
            let _ = (log_options(query, NOW), stream_options(query), command(query), ports(query), run_command(query));
        }
    }
}
