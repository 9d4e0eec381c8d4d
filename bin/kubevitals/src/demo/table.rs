//! The table of what is used, with the quantities that the metrics API would print.

use std::collections::BTreeMap;
use std::io::{self, Write};

use kubevitals_model::{ContainerKey, GoDuration, Usage};

const HEADINGS: [&str; 6] = ["NAMESPACE", "POD", "CONTAINER", "CPU", "MEMORY", "WINDOW"];

/// Writes one row for each container, columns as wide as their widest cell.
pub(super) fn write(out: &mut dyn Write, usage: &BTreeMap<ContainerKey, Usage>) -> io::Result<()> {
    let rows: Vec<[String; 6]> = std::iter::once(HEADINGS.map(str::to_owned))
        .chain(usage.iter().map(|(key, usage)| row(key, usage)))
        .collect();
    let mut widths = [0; 6];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.len().max(*width);
        }
    }
    for row in &rows {
        let cells = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("   ");
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn row(key: &ContainerKey, usage: &Usage) -> [String; 6] {
    [
        key.pod().namespace().to_string(),
        key.pod().name().to_string(),
        key.container().to_string(),
        usage.cpu.to_string(),
        usage.memory.to_string(),
        GoDuration::saturating_from(usage.window).to_string(),
    ]
}
