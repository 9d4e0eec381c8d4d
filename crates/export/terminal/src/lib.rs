//! Records of pods, drawn for a terminal.
//!
//! [`Waterfall`] draws the phases of each start as bars; [`write_table`] writes a line for each
//! pod; [`Summaries`] writes statistics of many. Names and messages come from the cluster or a
//! file: [`printable`] replaces control characters, so that none reaches the terminal.

mod summary;
mod table;
mod waterfall;

pub use summary::{GroupRow, Summaries};
pub use table::{TableRow, write_table};
pub use waterfall::Waterfall;

/// Replaces control characters by blanks.
pub fn printable(text: &str) -> String {
    let blank = |char: char| if char.is_control() { ' ' } else { char };
    text.chars().map(blank).collect()
}
