//! A kubelet's `/metrics/resource` in types of the model.

use std::collections::{BTreeMap, BTreeSet};

use kubevitals_model::{
    Bytes, BytesSample, ContainerKey, ContainerSample, CoreNanos, CpuSample, NodeSample, Timestamp,
};
use kubevitals_promtext::{Item, Sample, parse};

use crate::error::E2eError;

/// One response of `/metrics/resource`.
#[derive(Debug, Clone, Default)]
pub struct ResourceMetrics {
    /// The samples of containers, by namespace, pod and container.
    pub containers: BTreeMap<(String, String, String), ContainerSample>,
    /// The sample of the node.
    pub node: NodeSample,
    /// All its series, known or unknown.
    pub series: Vec<Series>,
}

/// The shape of a series.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// The names of its labels, in the order of the line.
    pub labels: Vec<String>,
    /// The timestamp of its value, if it has one.
    pub timestamp_ms: Option<i64>,
}

impl ResourceMetrics {
    /// Parses a response; fails on an invalid line.
    pub fn parse(body: &[u8]) -> Result<Self, E2eError> {
        let mut metrics = Self::default();
        let mut problem = None;
        parse(body, |item| {
            let taken = match item {
                Item::Sample(sample) => metrics.take(&sample),
                Item::Error(error) => Err(error.to_string()),
                _ => Ok(()),
            };
            if let Err(found) = taken {
                problem.get_or_insert(found);
            }
        });
        match problem {
            Some(first) => Err(E2eError::Metrics { first }),
            None => Ok(metrics),
        }
    }

    /// Returns the sample of a container.
    pub fn container(&self, key: &ContainerKey) -> Option<&ContainerSample> {
        let pod = key.pod();
        let key = (
            pod.namespace().to_string(),
            pod.name().to_string(),
            key.container().to_string(),
        );
        self.containers.get(&key)
    }

    /// The names of all series.
    pub fn names(&self) -> BTreeSet<&str> {
        self.series
            .iter()
            .map(|series| series.name.as_str())
            .collect()
    }

    fn take(&mut self, sample: &Sample<'_, '_>) -> Result<(), String> {
        let name = sample.name.as_str();
        self.series.push(Series {
            name: name.to_owned(),
            labels: sample
                .labels
                .iter()
                .map(|label| label.name.as_str().to_owned())
                .collect(),
            timestamp_ms: sample.timestamp_ms,
        });
        let wrong = |error: &dyn std::fmt::Display| format!("line {}: {error}", sample.line);
        let at = || {
            let at = sample.timestamp_ms.map(Timestamp::from_unix_millis);
            at.ok_or_else(|| wrong(&format!("{name} has no timestamp")))
        };
        let cpu = || {
            let total = CoreNanos::from_seconds(sample.value).map_err(|error| wrong(&error))?;
            Ok::<_, String>(Some(CpuSample { at: at()?, total }))
        };
        let bytes = || {
            let bytes = Bytes::from_f64(sample.value).map_err(|error| wrong(&error))?;
            Ok::<_, String>(Some(BytesSample { at: at()?, bytes }))
        };
        match name {
            "node_cpu_usage_seconds_total" => self.node.cpu = cpu()?,
            "node_memory_working_set_bytes" => self.node.memory = bytes()?,
            "node_swap_usage_bytes" => self.node.swap = bytes()?,
            "container_cpu_usage_seconds_total" => self.container_of(sample)?.cpu = cpu()?,
            "container_memory_working_set_bytes" => self.container_of(sample)?.memory = bytes()?,
            "container_swap_usage_bytes" => self.container_of(sample)?.swap = bytes()?,
            "container_start_time_seconds" => {
                let started =
                    Timestamp::from_unix_seconds(sample.value).map_err(|error| wrong(&error))?;
                self.container_of(sample)?.started = Some(started);
            }
            _ => {}
        }
        Ok(())
    }

    fn container_of(&mut self, sample: &Sample<'_, '_>) -> Result<&mut ContainerSample, String> {
        let labels = sample.pick(["namespace", "pod", "container"]);
        let [Some(namespace), Some(pod), Some(container)] = labels else {
            return Err(format!(
                "line {}: a series of a container without its names",
                sample.line
            ));
        };
        let key = [namespace, pod, container].map(|label| label.value().into_owned());
        let [namespace, pod, container] = key;
        Ok(self
            .containers
            .entry((namespace, pod, container))
            .or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str = r#"# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="burner",namespace="n",pod="p"} 1.5 1794773483261
container_memory_working_set_bytes{container="burner",namespace="n",pod="p"} 4096 1794773483262
container_start_time_seconds{container="burner",namespace="n",pod="p"} 1.7947734e+09
node_cpu_usage_seconds_total 9 1794773483000
resource_scrape_error 0
"#;

    #[test]
    fn a_response_is_parsed_into_samples() {
        let metrics = ResourceMetrics::parse(BODY.as_bytes()).unwrap();
        let burner = metrics
            .container(&ContainerKey::new("n", "p", "burner"))
            .unwrap();
        let cpu = burner.cpu.unwrap();
        assert_eq!(cpu.total, CoreNanos::new(1_500_000_000));
        assert_eq!(cpu.at, Timestamp::from_unix_millis(1_794_773_483_261));
        assert_eq!(burner.memory.unwrap().bytes, Bytes::new(4_096));
        assert_eq!(burner.started.unwrap().unix_seconds(), 1_794_773_400);
        assert_eq!(burner.swap, None);
        assert_eq!(
            metrics.node.cpu.unwrap().total,
            CoreNanos::new(9_000_000_000)
        );
        assert_eq!(metrics.series.len(), 5);
        assert_eq!(metrics.series[0].labels, ["container", "namespace", "pod"]);
    }

    #[test]
    fn an_invalid_line_is_an_error() {
        for (body, problem) in [
            ("node_cpu_usage_seconds_total 9\n", "has no timestamp"),
            (
                "container_cpu_usage_seconds_total{pod=\"p\"} 9 1\n",
                "without its names",
            ),
            ("node_cpu_usage_seconds_total nine 1\n", "line 1"),
        ] {
            let error = ResourceMetrics::parse(body.as_bytes())
                .unwrap_err()
                .to_string();
            assert!(error.contains(problem), "{error}");
        }
    }
}
