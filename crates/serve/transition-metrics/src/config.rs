//! Labels of the families, and the limit of their series.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use kubevitals_model::Labels;
use kubevitals_transitions::LabelKeys;
pub use kubevitals_transitions::POOL_LABELS;

use crate::error::TransitionMetricsError;

/// The zone of a node. Newer API servers copy it to each pod when it is bound.
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";

/// The name of [`ZONE`] before Kubernetes 1.17, which old nodes still have alone.
const OLD_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";

/// Maximum number of pool labels.
const MAX_POOL_LABELS: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FamilyConfig {
    /// Labels in addition to those of each family.
    pub labels: LabelChoice,
    /// Labels of the pods themselves, in addition to those.
    pub label_keys: LabelKeys,
    /// Maximum number of label sets with series of their own; all others are counted together.
    pub series_limit: usize,
    /// Time after which the series of an unused label set are removed; `None` for never.
    pub idle_timeout: Option<Duration>,
    /// Whether protobuf responses also have native histograms.
    pub native_histograms: bool,
    /// Labels for the pool of a node, of which the first 32 are used.
    pub pool_labels: Vec<String>,
}

/// Labels in addition to those of each family: any of `namespace`, `workload`, `node_pool` and
/// `zone`.
///
/// It is parsed from a comma-separated list. `workload` stands for two labels, `workload_kind` and
/// `workload`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "four independent labels")]
pub struct LabelChoice {
    pub namespace: bool,
    pub workload: bool,
    pub node_pool: bool,
    pub zone: bool,
}

/// The topology of a pod's node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Topology<'n> {
    pub pool: Option<&'n str>,
    pub zone: Option<&'n str>,
}

impl Default for FamilyConfig {
    fn default() -> Self {
        Self {
            labels: LabelChoice::default(),
            label_keys: LabelKeys::default(),
            series_limit: 300,
            idle_timeout: Some(Duration::from_hours(24)),
            native_histograms: false,
            pool_labels: POOL_LABELS.map(str::to_owned).into(),
        }
    }
}

impl FamilyConfig {
    /// The topology of a node with these labels.
    pub fn topology_of<'n>(&self, node: &'n Labels) -> Topology<'n> {
        let pool_labels = self.pool_labels.iter().map(String::as_str);
        Topology::find(node, pool_labels.take(MAX_POOL_LABELS))
    }
}

impl<'n> Topology<'n> {
    /// The topology of a node, by the default labels for pools ([`POOL_LABELS`]).
    pub fn of_node(node: &'n Labels) -> Self {
        Self::find(node, POOL_LABELS)
    }

    fn find<'k>(node: &'n Labels, pool_labels: impl IntoIterator<Item = &'k str>) -> Self {
        let value = |key: &str| {
            node.get(key)
                .map(|value| &**value)
                .filter(|value| !value.is_empty())
        };
        Self {
            pool: pool_labels.into_iter().find_map(value),
            zone: value(ZONE).or_else(|| value(OLD_ZONE)),
        }
    }
}

impl LabelChoice {
    /// No labels but those of each family.
    pub const NONE: Self = Self {
        namespace: false,
        workload: false,
        node_pool: false,
        zone: false,
    };

    /// All labels.
    pub const ALL: Self = Self {
        namespace: true,
        workload: true,
        node_pool: true,
        zone: true,
    };

    /// Each name, and whether it is chosen.
    const fn words(self) -> [(&'static str, bool); 4] {
        [
            ("namespace", self.namespace),
            ("workload", self.workload),
            ("node_pool", self.node_pool),
            ("zone", self.zone),
        ]
    }
}

impl Default for LabelChoice {
    fn default() -> Self {
        Self {
            namespace: true,
            workload: true,
            ..Self::NONE
        }
    }
}

impl FromStr for LabelChoice {
    type Err = TransitionMetricsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut choice = Self::NONE;
        for word in text.split(',').map(str::trim) {
            match word {
                "" => {}
                "namespace" => choice.namespace = true,
                "workload" => choice.workload = true,
                "node_pool" => choice.node_pool = true,
                "zone" => choice.zone = true,
                _ => {
                    return Err(TransitionMetricsError::UnknownLabel {
                        found: word.to_owned(),
                    });
                }
            }
        }
        Ok(choice)
    }
}

impl fmt::Display for LabelChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (word, _) in self.words().into_iter().filter(|(_, chosen)| *chosen) {
            write!(f, "{separator}{word}")?;
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        let mut pairs: Vec<_> = pairs
            .iter()
            .map(|(k, v)| ((*k).into(), (*v).into()))
            .collect();
        pairs.sort();
        Labels::from_sorted(pairs.into())
    }

    #[test]
    fn choices_survive_a_round_trip() {
        for text in ["", "namespace", "namespace,workload,node_pool,zone", "zone"] {
            assert_eq!(text.parse::<LabelChoice>().unwrap().to_string(), text);
        }
        let choice: LabelChoice = " workload , namespace,".parse().unwrap();
        assert_eq!(choice, LabelChoice::default());
        let error = "namespace,pod".parse::<LabelChoice>().unwrap_err();
        assert!(error.to_string().contains("\"pod\""), "{error}");
    }

    #[test]
    fn nodes_of_every_provider_have_a_pool() {
        for key in POOL_LABELS {
            let node = labels(&[(key, "b"), (ZONE, "z1"), ("kubernetes.io/hostname", "n")]);
            let topology = Topology::of_node(&node);
            assert_eq!((topology.pool, topology.zone), (Some("b"), Some("z1")));
        }
        let node = labels(&[("eks.amazonaws.com/nodegroup", ""), (OLD_ZONE, "z2")]);
        assert_eq!(
            Topology::of_node(&node),
            Topology {
                pool: None,
                zone: Some("z2")
            }
        );
        let config = FamilyConfig {
            pool_labels: vec!["team/pool".to_owned()],
            ..FamilyConfig::default()
        };
        let node = labels(&[("team/pool", "a"), ("agentpool", "b")]);
        assert_eq!(config.topology_of(&node).pool, Some("a"));
        assert_eq!(Topology::of_node(&node).pool, Some("b"));
    }
}
