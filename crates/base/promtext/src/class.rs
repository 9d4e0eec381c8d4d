//! Classes of bytes in one table, so that a scan costs one load per byte.

/// May start a metric name: `[a-zA-Z_:]`.
pub(crate) const METRIC_START: u8 = 1;
/// May continue a metric name: `[a-zA-Z0-9_:]`.
pub(crate) const METRIC: u8 = 1 << 1;
/// May start a label name: `[a-zA-Z_]`.
pub(crate) const LABEL_START: u8 = 1 << 2;
/// May continue a label name: `[a-zA-Z0-9_]`.
pub(crate) const LABEL: u8 = 1 << 3;
/// Separates tokens: blank or tab.
pub(crate) const BLANK: u8 = 1 << 4;

static CLASSES: [u8; 256] = table();

/// Returns whether `byte` belongs to any class of `mask`.
#[inline]
pub(crate) fn is(byte: u8, mask: u8) -> bool {
    // The compiler knows that `get` cannot fail and emits no check.
    CLASSES
        .get(usize::from(byte))
        .is_some_and(|class| class & mask != 0)
}

/// Returns the classes of a byte.
pub(crate) const fn of(byte: u8) -> u8 {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'_' => METRIC_START | METRIC | LABEL_START | LABEL,
        b'0'..=b'9' => METRIC | LABEL,
        b':' => METRIC_START | METRIC,
        b' ' | b'\t' => BLANK,
        _ => 0,
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, over the array's own range"
)]
const fn table() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0_u8;
    loop {
        table[byte as usize] = of(byte);
        if byte == u8::MAX {
            return table;
        }
        byte += 1;
    }
}
