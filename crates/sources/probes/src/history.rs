//! The last results, kept as they were measured. Text is written when somebody asks for it.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::probe::Completed;

/// The last results of all probes, and older failures, so that successes of many targets do not
/// push the few failures out.
#[derive(Debug)]
pub struct History {
    capacity: usize,
    inner: Mutex<Inner>,
}

/// A kept result.
#[derive(Debug, Clone)]
pub struct HistoryEntry {
    /// Ascending, from 1.
    pub id: u64,
    pub completed: Arc<Completed>,
}

#[derive(Debug, Default)]
struct Inner {
    last_id: u64,
    recent: VecDeque<HistoryEntry>,
    failures: VecDeque<HistoryEntry>,
}

impl History {
    /// Keeps `capacity` results, and as many older failures.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            inner: Mutex::default(),
        }
    }

    pub fn push(&self, completed: Completed) {
        if self.capacity == 0 {
            return;
        }
        let completed = Arc::new(completed);
        let mut inner = self.inner.lock();
        inner.last_id = inner.last_id.saturating_add(1);
        let id = inner.last_id;
        inner.recent.push_back(HistoryEntry { id, completed });
        if inner.recent.len() <= self.capacity {
            return;
        }
        let oldest = inner.recent.pop_front();
        if let Some(oldest) = oldest.filter(|entry| !entry.completed.outcome.is_success()) {
            inner.failures.push_back(oldest);
            if inner.failures.len() > self.capacity {
                inner.failures.pop_front();
            }
        }
    }

    /// All entries, newest first.
    pub fn entries(&self) -> Vec<HistoryEntry> {
        let inner = self.inner.lock();
        let newest_first = inner.recent.iter().rev().chain(inner.failures.iter().rev());
        newest_first.cloned().collect()
    }

    pub fn get(&self, id: u64) -> Option<HistoryEntry> {
        self.find(|entry| entry.id == id)
    }

    /// The newest result of a target by a module.
    pub fn newest(&self, target: &str, module: &str) -> Option<HistoryEntry> {
        self.find(|entry| {
            *entry.completed.target == *target && *entry.completed.probe.module == *module
        })
    }

    fn find(&self, matches: impl Fn(&HistoryEntry) -> bool) -> Option<HistoryEntry> {
        let inner = self.inner.lock();
        let mut newest_first = inner.recent.iter().rev().chain(inner.failures.iter().rev());
        newest_first.find(|entry| matches(entry)).cloned()
    }
}

impl HistoryEntry {
    /// The result as text for people.
    pub fn render(&self) -> String {
        let completed = &self.completed;
        let outcome = &completed.outcome;
        let mut text = String::new();
        let mut line = |name: &str, value: &dyn std::fmt::Display| {
            let _infallible = writeln!(text, "{name:<11} {value}");
        };
        line("id", &self.id);
        line("probe", &completed.probe.name);
        line("module", &completed.probe.module);
        line("target", &completed.target);
        line("scheduled", &completed.scheduled.rfc3339_millis());
        line("started", &outcome.started.rfc3339_millis());
        line("lag", &format_args!("{:?}", completed.lag));
        line("duration", &format_args!("{:?}", outcome.duration));
        for phase in &outcome.phases {
            let name = format!("  {}", phase.phase.as_str());
            line(&name, &format_args!("{:?}", phase.duration));
        }
        match &outcome.failure {
            None => line("result", &"success"),
            Some(failure) => {
                line("result", &failure.reason.as_str());
                if let Some(phase) = failure.phase {
                    line("phase", &phase.as_str());
                }
                line("message", &failure.message);
            }
        }
        line("verdict", &completed.verdict.as_str());
        text
    }
}
