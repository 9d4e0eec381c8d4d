//! Bounds of buckets and values: client-go's where it has the family.

/// Request durations in seconds.
pub(crate) const LATENCY: [f64; 12] = [
    0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0,
];

/// Name resolution in seconds: as for requests, without the last.
pub(crate) const RESOLVER: [f64; 11] =
    [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0];

/// 64 bytes to 16 MiB.
pub(crate) const SIZE: [f64; 11] = [
    64.0,
    256.0,
    512.0,
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
];

/// Ten minutes to four years.
pub(crate) const CERTIFICATE_AGE: [f64; 11] = [
    600.0,
    1800.0,
    3600.0,
    14_400.0,
    86_400.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
    124_416_000.0,
];

/// A second to a day; API servers end watches after five to ten minutes, or as requested.
pub(crate) const STREAM: [f64; 11] = [
    1.0, 5.0, 15.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 14_400.0, 86_400.0,
];

/// Ten nanoseconds to ten seconds.
pub(crate) const QUEUE: [f64; 10] = decades(10e-9);

/// One object to a hundred thousand.
pub(crate) const ITEMS: [f64; 6] = decades(1.0);

/// Reconciliations in seconds, as in controller-runtime.
pub(crate) const RECONCILE: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9,
    1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0,
    25.0, 30.0, 40.0, 50.0, 60.0,
];

/// Events of informers in seconds.
pub(crate) const INFORMER: [f64; 12] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// The version of an informer's store has 15 digits, as in client-go: more are not exact as a
/// float.
pub(crate) const STORE_VERSION: u64 = 1_000_000_000_000_000;

/// Powers of ten, multiplied step by step as in Go: a power function would differ in the last
/// digit, and so would the label.
#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, within the array"
)]
const fn decades<const N: usize>(first: f64) -> [f64; N] {
    let mut bounds = [first; N];
    let mut at = 1;
    while at < N {
        bounds[at] = bounds[at - 1] * 10.0;
        at += 1;
    }
    bounds
}
