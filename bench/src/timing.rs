//! A timing loop for operations that run in the benchmark itself.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Durations of repeated runs.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// The shortest run: the least disturbed by other load of the machine.
    pub best: Duration,
    pub median: Duration,
}

impl Timing {
    /// Times `runs` runs after an untimed one; each gets its number.
    pub fn of(runs: usize, run: impl FnMut(usize)) -> Self {
        let start = Instant::now();
        Self::by(|| start.elapsed(), runs, run)
    }

    /// Like [`Timing::of`], but measures processor time of the whole process: other load of the
    /// machine matters less.
    pub fn of_cpu(runs: usize, run: impl FnMut(usize)) -> Self {
        Self::by(cpu_time, runs, run)
    }

    fn by(clock: impl Fn() -> Duration, runs: usize, mut run: impl FnMut(usize)) -> Self {
        run(0);
        let mut times: Vec<Duration> = (0..runs.max(1))
            .map(|number| {
                let start = clock();
                run(number);
                clock().saturating_sub(start)
            })
            .collect();
        times.sort_unstable();
        let at = |index: usize| times.get(index).copied().unwrap_or_default();
        Self {
            best: at(0),
            median: at(times.len() / 2),
        }
    }
}

/// Megabytes (10^6 bytes) per second.
pub fn megabytes_per_second(bytes: usize, time: Duration) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "sizes of bodies are far below 2^53"
    )]
    let bytes = bytes as f64;
    bytes / time.as_secs_f64() / 1e6
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}
