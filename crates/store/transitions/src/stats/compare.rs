//! Compares the starts of two sets of pods: of two revisions, or before and after a change.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use super::{PhaseTotal, StartStats};
use crate::critical_path::Phase;

/// A difference of less is noise of times in whole seconds.
const MIN_CHANGE: Duration = Duration::from_millis(500);

/// A phase whose mean time differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseChange {
    pub phase: Phase,
    pub container: Option<Arc<str>>,
    pub before: Duration,
    pub after: Duration,
}

/// A container whose images differ; `None` where it does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageChange {
    pub container: String,
    pub before: Option<String>,
    pub after: Option<String>,
}

/// The phases whose mean time over pods that became ready differs, the largest difference first.
pub fn phase_changes(before: &StartStats, after: &StartStats) -> Vec<PhaseChange> {
    if before.phased == 0 || after.phased == 0 {
        return Vec::new();
    }
    let same = |one: &PhaseTotal, two: &PhaseTotal| {
        (one.phase, &one.container) == (two.phase, &two.container)
    };
    let mean_in = |stats: &StartStats, wanted: &PhaseTotal| {
        let found = stats.phases.iter().find(|phase| same(phase, wanted));
        found.map_or(Duration::ZERO, |phase| stats.mean(phase))
    };
    let new = after.phases.iter();
    let new = new.filter(|phase| !before.phases.iter().any(|known| same(known, phase)));
    let mut changes: Vec<PhaseChange> = before
        .phases
        .iter()
        .chain(new)
        .map(|phase| PhaseChange {
            phase: phase.phase,
            container: phase.container.clone(),
            before: mean_in(before, phase),
            after: mean_in(after, phase),
        })
        .filter(|change| change.before.abs_diff(change.after) >= MIN_CHANGE)
        .collect();
    changes.sort_by_key(|change| (Reverse(change.before.abs_diff(change.after)), change.phase));
    changes
}

/// The containers whose images differ, by name.
pub fn image_changes(before: &StartStats, after: &StartStats) -> Vec<ImageChange> {
    let (old, new) = (before.images(), after.images());
    let mut containers: Vec<&str> = old.iter().chain(&new).map(|(name, _)| *name).collect();
    containers.sort_unstable();
    containers.dedup();
    let of = |images: &[(&str, &str)], container: &str| {
        let images: Vec<&str> = images
            .iter()
            .filter(|(name, _)| *name == container)
            .map(|(_, image)| *image)
            .collect();
        (!images.is_empty()).then(|| images.join(", "))
    };
    containers
        .into_iter()
        .map(|container| ImageChange {
            container: container.to_owned(),
            before: of(&old, container),
            after: of(&new, container),
        })
        .filter(|change| change.before != change.after)
        .collect()
}
