//! The programs that can be built, and the recipe of each.

use anyhow::{Context, Result};
use clap::ValueEnum;

/// A program that can be built from a module in `e2e/kube`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Program {
    KubeApiserver,
    KubeControllerManager,
    KubeScheduler,
    Kubelet,
    Kubectl,
    KubeProxy,
    /// The oldest kubelet that the tests run.
    #[value(name = "kubelet-1.35")]
    Kubelet135,
    Etcd,
    MetricsServer,
    MetricsServerE2e,
    ConsumeCpu,
    VpaRecommender,
    VirtualKubelet,
    Otelcol,
    Prometheus,
    Promtool,
    BlackboxExporter,
    Actionlint,
    Helm,
}

/// How a program is built.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recipe {
    /// Its module's folder in `e2e/kube`.
    pub(crate) folder: &'static str,
    /// The package with its `main`.
    pub(crate) package: &'static str,
    /// The module whose version, as `go.mod` has it, is the program's.
    pub(crate) versioned_by: &'static str,
    pub(crate) goal: Goal,
    tags: &'static str,
    stamp: Stamp,
}

/// What is built from a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Its command.
    Command,
    /// The program that runs its tests.
    Tests,
}

/// The linker variables that hold a program's version.
#[derive(Debug, Clone, Copy)]
enum Stamp {
    /// The version is a constant in the source.
    None,
    /// The variables that all of Kubernetes shares; without them programs call themselves
    /// `v0.0.0-master`.
    Kubernetes,
    /// One variable, set to the version.
    Variable(&'static str),
    /// Release 3.15.0 of Prometheus is version v0.315.0 of its module.
    Prometheus,
}

/// Only the service discovery that we use: the others bring the client libraries of every cloud.
const KUBERNETES_DISCOVERY: &str = "remove_all_sd,enable_kubernetes_sd";

impl Program {
    pub(crate) const ALL: [Self; 19] = [
        Self::KubeApiserver,
        Self::KubeControllerManager,
        Self::KubeScheduler,
        Self::Kubelet,
        Self::Kubectl,
        Self::KubeProxy,
        Self::Kubelet135,
        Self::Etcd,
        Self::MetricsServer,
        Self::MetricsServerE2e,
        Self::ConsumeCpu,
        Self::VpaRecommender,
        Self::VirtualKubelet,
        Self::Otelcol,
        Self::Prometheus,
        Self::Promtool,
        Self::BlackboxExporter,
        Self::Actionlint,
        Self::Helm,
    ];

    /// The programs of the end-to-end tests: a cluster, an older kubelet, the metrics-server that
    /// we replace, its own tests, an autoscaler that reads us, a receiver of our traces,
    /// Prometheus, which scrapes us, the prober that ours is compared with, the linter of the
    /// workflow files, and the Helm that installs us.
    pub(crate) fn for_e2e() -> Vec<Self> {
        Self::ALL
            .into_iter()
            .filter(|program| !matches!(program, Self::VirtualKubelet))
            .collect()
    }

    /// The name of the program's file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Kubelet => "kubelet",
            Self::Kubectl => "kubectl",
            Self::KubeProxy => "kube-proxy",
            Self::Kubelet135 => "kubelet-1.35",
            Self::Etcd => "etcd",
            Self::MetricsServer => "metrics-server",
            Self::MetricsServerE2e => "metrics-server-e2e",
            Self::ConsumeCpu => "consume-cpu",
            Self::VpaRecommender => "vpa-recommender",
            Self::VirtualKubelet => "virtual-kubelet",
            Self::Otelcol => "otelcol",
            Self::Prometheus => "prometheus",
            Self::Promtool => "promtool",
            Self::BlackboxExporter => "blackbox-exporter",
            Self::Actionlint => "actionlint",
            Self::Helm => "helm",
        }
    }

    pub(crate) fn recipe(self) -> Recipe {
        match self {
            Self::KubeApiserver => kubernetes("k8s.io/kubernetes/cmd/kube-apiserver"),
            Self::KubeControllerManager => {
                kubernetes("k8s.io/kubernetes/cmd/kube-controller-manager")
            }
            Self::KubeScheduler => kubernetes("k8s.io/kubernetes/cmd/kube-scheduler"),
            Self::Kubelet => kubernetes("k8s.io/kubernetes/cmd/kubelet"),
            Self::Kubectl => kubernetes("k8s.io/kubernetes/cmd/kubectl"),
            Self::KubeProxy => kubernetes("k8s.io/kubernetes/cmd/kube-proxy"),
            Self::Kubelet135 => Recipe {
                folder: "kubernetes-1.35",
                ..kubernetes("k8s.io/kubernetes/cmd/kubelet")
            },
            Self::Etcd => Recipe {
                folder: "etcd",
                package: "go.etcd.io/etcd/server/v3",
                versioned_by: "go.etcd.io/etcd/server/v3",
                goal: Goal::Command,
                tags: "",
                stamp: Stamp::None,
            },
            Self::MetricsServer => Recipe {
                folder: "metrics-server",
                package: "sigs.k8s.io/metrics-server/cmd/metrics-server",
                versioned_by: "sigs.k8s.io/metrics-server",
                goal: Goal::Command,
                tags: "",
                stamp: Stamp::Kubernetes,
            },
            Self::MetricsServerE2e => Recipe {
                folder: "metrics-server-e2e",
                package: "sigs.k8s.io/metrics-server/test",
                versioned_by: "sigs.k8s.io/metrics-server",
                goal: Goal::Tests,
                tags: "",
                stamp: Stamp::None,
            },
            Self::ConsumeCpu => Recipe {
                folder: "resource-consumer",
                package: "k8s.io/kubernetes/test/images/resource-consumer/consume-cpu",
                versioned_by: "k8s.io/kubernetes",
                goal: Goal::Command,
                tags: "",
                stamp: Stamp::None,
            },
            Self::VpaRecommender => Recipe {
                folder: "vertical-pod-autoscaler",
                package: "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender",
                versioned_by: "k8s.io/autoscaler/vertical-pod-autoscaler",
                goal: Goal::Command,
                tags: "",
                stamp: Stamp::None,
            },
            Self::VirtualKubelet => Recipe {
                folder: "virtual-kubelet",
                package: ".",
                versioned_by: "github.com/virtual-kubelet/virtual-kubelet",
                goal: Goal::Command,
                tags: "",
                stamp: Stamp::Variable("main.version"),
            },
            Self::Otelcol => Recipe {
                folder: "otelcol",
                package: ".",
                versioned_by: "go.opentelemetry.io/collector/otelcol",
                goal: Goal::Command,
                tags: "",
                stamp: Stamp::Variable("main.version"),
            },
            Self::Prometheus => prometheus("github.com/prometheus/prometheus/cmd/prometheus"),
            Self::Promtool => prometheus("github.com/prometheus/prometheus/cmd/promtool"),
            Self::BlackboxExporter => Recipe {
                folder: "blackbox-exporter",
                package: "github.com/prometheus/blackbox_exporter",
                versioned_by: "github.com/prometheus/blackbox_exporter",
                goal: Goal::Command,
                tags: "",
                stamp: Stamp::Variable("github.com/prometheus/common/version.Version"),
            },
            Self::Actionlint => Recipe {
                folder: "actionlint",
                package: "github.com/rhysd/actionlint/cmd/actionlint",
                versioned_by: "github.com/rhysd/actionlint",
                goal: Goal::Command,
                tags: "",
                stamp: Stamp::None,
            },
            Self::Helm => Recipe {
                folder: "helm",
                package: "helm.sh/helm/v3/cmd/helm",
                versioned_by: "helm.sh/helm/v3",
                goal: Goal::Command,
                tags: "",
                stamp: Stamp::Variable("helm.sh/helm/v3/internal/version.version"),
            },
        }
    }
}

impl Recipe {
    /// Returns the arguments of `go build` and of `go list`, the package last, without the output
    /// path.
    pub(crate) fn build_arguments(&self, version: &str) -> Result<Vec<String>> {
        let mut linker = vec!["-s -w".to_owned()];
        for (variable, value) in self.stamp.variables(version)? {
            linker.push(format!("-X {variable}={value}"));
        }
        let mut arguments = vec![
            "-trimpath".to_owned(),
            "-buildvcs=false".to_owned(),
            format!("-ldflags={}", linker.join(" ")),
        ];
        if !self.tags.is_empty() {
            arguments.push(format!("-tags={}", self.tags));
        }
        arguments.push(self.package.to_owned());
        Ok(arguments)
    }
}

impl Stamp {
    fn variables(self, version: &str) -> Result<Vec<(String, String)>> {
        Ok(match self {
            Self::None => Vec::new(),
            Self::Variable(name) => vec![(name.to_owned(), version.to_owned())],
            Self::Kubernetes => {
                let (major, minor, _) = numbers(version)?;
                // The first is the version that a program prints, the second that of its user
                // agent.
                [
                    "k8s.io/component-base/version",
                    "k8s.io/client-go/pkg/version",
                ]
                .into_iter()
                .flat_map(|package| {
                    [
                        (format!("{package}.gitVersion"), version.to_owned()),
                        (format!("{package}.gitMajor"), major.to_string()),
                        (format!("{package}.gitMinor"), minor.to_string()),
                    ]
                })
                .collect()
            }
            Self::Prometheus => {
                let (_, minor, patch) = numbers(version)?;
                let release = format!("{}.{}.{patch}", minor / 100, minor % 100);
                let variable = "github.com/prometheus/common/version.Version";
                vec![(variable.to_owned(), release)]
            }
        })
    }
}

fn kubernetes(package: &'static str) -> Recipe {
    Recipe {
        folder: "kubernetes",
        package,
        versioned_by: "k8s.io/kubernetes",
        goal: Goal::Command,
        tags: "",
        stamp: Stamp::Kubernetes,
    }
}

fn prometheus(package: &'static str) -> Recipe {
    Recipe {
        folder: "prometheus",
        package,
        versioned_by: "github.com/prometheus/prometheus",
        goal: Goal::Command,
        tags: KUBERNETES_DISCOVERY,
        stamp: Stamp::Prometheus,
    }
}

/// The numbers of `v1.37.1`.
fn numbers(version: &str) -> Result<(u32, u32, u32)> {
    let read = || {
        let mut parts = version.strip_prefix('v')?.split('.');
        let mut number = || parts.next()?.parse().ok();
        let found = (number()?, number()?, number()?);
        parts.next().is_none().then_some(found)
    };
    read().with_context(|| format!("{version:?} is not a version of the form v1.2.3"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linker_flags(program: Program, version: &str) -> String {
        program
            .recipe()
            .build_arguments(version)
            .unwrap()
            .into_iter()
            .find(|argument| argument.starts_with("-ldflags="))
            .unwrap()
    }

    #[test]
    fn names_on_the_command_line_are_names_of_files() {
        for program in Program::ALL {
            let value = program.to_possible_value().unwrap();
            assert_eq!(value.get_name(), program.name());
        }
        assert_eq!(Program::ALL.len(), Program::value_variants().len());
    }

    #[test]
    fn the_suite_needs_the_cluster_and_its_peers() {
        let names: Vec<&str> = Program::for_e2e().iter().map(|one| one.name()).collect();
        assert_eq!(
            names,
            [
                "kube-apiserver",
                "kube-controller-manager",
                "kube-scheduler",
                "kubelet",
                "kubectl",
                "kube-proxy",
                "kubelet-1.35",
                "etcd",
                "metrics-server",
                "metrics-server-e2e",
                "consume-cpu",
                "vpa-recommender",
                "otelcol",
                "prometheus",
                "promtool",
                "blackbox-exporter",
                "actionlint",
                "helm"
            ]
        );
    }

    #[test]
    fn kubernetes_programs_have_their_version() {
        let flags = linker_flags(Program::Kubectl, "v1.37.1");
        for wanted in [
            "-X k8s.io/component-base/version.gitVersion=v1.37.1",
            "-X k8s.io/component-base/version.gitMajor=1",
            "-X k8s.io/component-base/version.gitMinor=37",
            "-X k8s.io/client-go/pkg/version.gitVersion=v1.37.1",
        ] {
            assert!(flags.contains(wanted), "{flags}");
        }
    }

    #[test]
    fn prometheus_has_the_version_of_its_release_not_of_its_module() {
        assert_eq!(
            linker_flags(Program::Prometheus, "v0.315.0"),
            "-ldflags=-s -w -X github.com/prometheus/common/version.Version=3.15.0"
        );
        assert!(linker_flags(Program::Prometheus, "v0.302.1").ends_with("=3.2.1"));
    }

    #[test]
    fn the_package_comes_last() {
        let arguments = Program::Etcd.recipe().build_arguments("v3.7.3").unwrap();
        assert_eq!(
            arguments,
            [
                "-trimpath",
                "-buildvcs=false",
                "-ldflags=-s -w",
                "go.etcd.io/etcd/server/v3"
            ]
        );
    }

    #[test]
    fn an_invalid_version_is_named_in_the_error() {
        for wrong in ["", "1.37.1", "v1.37", "v1.37.1.2", "v1.37.x"] {
            let error = Program::Kubelet
                .recipe()
                .build_arguments(wrong)
                .unwrap_err();
            assert!(error.to_string().contains(&format!("{wrong:?}")), "{error}");
        }
    }
}
