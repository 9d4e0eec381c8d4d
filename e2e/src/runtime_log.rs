//! Image pulls in the log of containerd: what the runtime itself says about their time.

use std::time::Duration;

use kubevitals_model::Timestamp;

use crate::cluster::Cluster;
use crate::error::E2eError;

/// A pull, from the request of the kubelet to the response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimePull {
    /// The reference of the image.
    pub image: String,
    /// The request.
    pub started: Timestamp,
    /// The response.
    pub finished: Timestamp,
    /// Whether the image was pulled.
    pub succeeded: bool,
}

impl RuntimePull {
    /// The time from the request to the response.
    pub fn took(&self) -> Duration {
        self.finished.since(self.started).unwrap_or_default()
    }
}

/// Returns the pulls that have ended, in the order of their ends.
pub fn runtime_pulls(cluster: &Cluster) -> Result<Vec<RuntimePull>, E2eError> {
    let path = cluster.log_folder().join("containerd.log");
    let text = std::fs::read(&path).map_err(|source| E2eError::Program {
        program: path.display().to_string(),
        source,
    })?;
    Ok(pulls(&String::from_utf8_lossy(&text)))
}

fn pulls(log: &str) -> Vec<RuntimePull> {
    let mut begun: Vec<(&str, Timestamp)> = Vec::new();
    let mut ended = Vec::new();
    for line in log.lines() {
        let Some((time, image, rest)) = pull_line(line) else {
            continue;
        };
        if rest.is_empty() {
            begun.push((image, time));
            continue;
        }
        let Some(at) = begun.iter().position(|(of, _)| *of == image) else {
            continue;
        };
        let (image, started) = begun.remove(at);
        ended.push(RuntimePull {
            image: image.to_owned(),
            started,
            finished: time,
            succeeded: rest.starts_with("returns image reference"),
        });
    }
    ended
}

/// Parses `time="…" level=info msg="PullImage \"IMAGE\" REST"`.
fn pull_line(line: &str) -> Option<(Timestamp, &str, &str)> {
    let (time, rest) = line.strip_prefix("time=\"")?.split_once('"')?;
    let (_, message) = rest.split_once("msg=\"PullImage \\\"")?;
    let (image, rest) = message.split_once("\\\"")?;
    let rest = rest.split_once("\" error=").map_or(rest, |(rest, _)| rest);
    let rest = rest.strip_suffix('"').unwrap_or(rest);
    Some((time.parse().ok()?, image, rest.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pulls_are_read_from_the_lines_of_containerd() {
        let log = r#"
time="2026-11-17T08:10:27.100000000Z" level=info msg="starting containerd"
time="2026-11-17T08:10:27.200000000Z" level=info msg="PullImage \"127.0.0.1:5000/a:1\""
time="2026-11-17T08:10:28.000000000Z" level=info msg="PullImage \"127.0.0.1:5000/b:1\""
time="2026-11-17T08:10:28.100000000Z" level=error msg="PullImage \"127.0.0.1:5000/b:1\" failed" error="429 \"Too Many\""
time="2026-11-17T08:10:35.700000000Z" level=info msg="PullImage \"127.0.0.1:5000/a:1\" returns image reference \"sha256:00\""
time="2026-11-17T08:10:36.000000000Z" level=info msg="PullImage \"127.0.0.1:5000/c:1\""
"#;
        let found = pulls(log);
        let brief: Vec<(&str, u128, bool)> = found
            .iter()
            .map(|pull| (pull.image.as_str(), pull.took().as_millis(), pull.succeeded))
            .collect();
        assert_eq!(
            brief,
            [
                ("127.0.0.1:5000/b:1", 100, false),
                ("127.0.0.1:5000/a:1", 8_500, true),
            ]
        );
    }
}
