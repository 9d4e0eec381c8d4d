//! Emits records: to hooks (metrics, exporters), and as lines for standard output.

use kubevitals_jsonl::{JsonLines, TransitionLines};
use kubevitals_model::Timestamp;
use kubevitals_sink::SinkCounts;
use kubevitals_transitions::Output;

use crate::pod_metrics::PodMetrics;

/// Receives every record on the task of the event loop, so it must be quick.
pub type RecordHook = Box<dyn FnMut(&Output) + Send>;

pub(crate) struct Emitter {
    pub(crate) form: TransitionLines,
    /// `None` if no lines are written.
    pub(crate) lines: Option<JsonLines>,
    pub(crate) pods: PodMetrics,
    pub(crate) hooks: Vec<RecordHook>,
    pub(crate) counts: RecordCounts,
}

/// Records emitted so far, by type.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RecordCounts {
    pub(crate) startups: u64,
    pub(crate) lifecycles: u64,
    pub(crate) progress: u64,
    pub(crate) image_pulls: u64,
}

impl Emitter {
    pub(crate) fn emit(&mut self, mut output: Output, now: Timestamp) {
        self.pods.add_node(&mut output);
        let output = &output;
        let count = match output {
            Output::Startup(_) => &mut self.counts.startups,
            Output::Lifecycle(_) => &mut self.counts.lifecycles,
            Output::Progress(_) => &mut self.counts.progress,
            Output::ImagePull(..) => &mut self.counts.image_pulls,
        };
        *count += 1;
        self.pods.record(output);
        for hook in &mut self.hooks {
            hook(output);
        }
        if let Some(lines) = &self.lines {
            let rendered = self.form.render(output, now);
            if !rendered.is_empty() {
                // Lines that do not fit the queue are counted there.
                lines.push(rendered);
            }
        }
    }

    pub(crate) fn line_counts(&self) -> SinkCounts {
        self.lines
            .as_ref()
            .map(JsonLines::counts)
            .unwrap_or_default()
    }
}
