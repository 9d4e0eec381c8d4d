//! Statistics of a Linux node, read from cgroups, `/proc` and file systems.
//!
//! ```text
//! /sys/fs/cgroup ──walk──► Tree: pods, containers ──┐
//! Names: PodTable (API) or LogNames (/var/log) ─────┼──► HostReader::sample ──► Sampler ──► HostStats
//! /proc: meminfo, net/dev, loadavg · statvfs ───────┘
//! ```
//!
//! **What is read.** The root cgroup, the cgroups of pods and their containers, the parent of all
//! pods and a few system services: never other cgroups, whose `memory.stat` is as costly. Both
//! versions of cgroups, both drivers' layouts and the names of all runtimes are known
//! ([`layout`]); pods are found by the pattern of their names, wherever the root of the kubelet is.
//!
//! **Cost.** Files are kept open and read again into one buffer, as far as
//! [`HostOptions::keep_files`] allows; limits are read in every sixth sample,
//! and pods are listed when their folders changed.
//!
//! **Errors.** A file or a cgroup that cannot be read is missing from the sample and counted by
//! reason ([`Fault`]). Every value that is unknown is absent.
//!
//! Process ids in `cgroup.procs` belong to the reader's pid namespace. A container needs the one of
//! the host (`hostPID`) for the network of pods.

mod cgroup;
mod error;
mod file;
#[cfg(feature = "test-util")]
pub mod fixture;
mod host;
pub mod layout;
mod machine;
mod metrics;
mod names;
pub mod parse;
mod read;
mod sampler;
mod tree;

pub use cgroup::CgroupVersion;
pub use error::{Fault, Faults, HostError};
pub use host::{HostOptions, HostReader, Sample};
pub use machine::HostPaths;
pub use metrics::HostMetrics;
pub use names::{ContainerNames, LogNames, Names, PodNames, PodTable};
pub use sampler::{HostStats, Sampler, SamplerOptions};
