//! Where what the tracker tells goes: lines for standard output, and whoever else wants to know.

use kubevitals_jsonl::{JsonLines, LineCounts, TransitionLines};
use kubevitals_model::Timestamp;
use kubevitals_transitions::Output;

/// Whoever else is told of every record, on the task of the event loop: it must be quick.
pub(super) type Listener = Box<dyn FnMut(&Output) + Send>;

/// Tells what there is to tell.
pub(super) struct Teller {
    pub(super) form: TransitionLines,
    /// None if no lines are wanted.
    pub(super) lines: Option<JsonLines>,
    pub(super) listener: Listener,
    pub(super) told: Told,
}

/// What was told so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Told {
    pub(super) startups: u64,
    pub(super) lives: u64,
    pub(super) progress: u64,
}

impl Teller {
    pub(super) fn tell(&mut self, output: &Output, now: Timestamp) {
        let count = match output {
            Output::Startup(_) => &mut self.told.startups,
            Output::Life(_) => &mut self.told.lives,
            Output::Progress(_) => &mut self.told.progress,
        };
        *count += 1;
        (self.listener)(output);
        if let Some(lines) = &self.lines {
            let rendered = self.form.render(output, now);
            if !rendered.is_empty() {
                // What does not fit is counted there.
                lines.push(rendered);
            }
        }
    }

    /// What became of the lines so far.
    pub(super) fn counts(&self) -> LineCounts {
        self.lines
            .as_ref()
            .map(JsonLines::counts)
            .unwrap_or_default()
    }
}
