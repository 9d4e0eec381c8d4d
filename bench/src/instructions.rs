//! Instructions of hot paths, counted by callgrind and compared with a record.
//!
//! Times vary with the machine and its other load; a count of instructions hardly does, so that a
//! change of two per cent is visible. It is no time: a cache miss costs as much as a hundred
//! instructions and counts as one.
//!
//! - [`callgrind`] runs a program under valgrind and parses the output;
//! - [`record`] is the file with the recorded counts;
//! - [`comparison`] is the table of both.

pub mod callgrind;
pub mod comparison;
pub mod record;

/// The function whose instructions are counted, including all that it calls: callgrind finds it by
/// name.
///
/// `work` gets the number of each call.
#[inline(never)]
pub fn counted_by_callgrind(times: usize, work: &mut dyn FnMut(usize)) {
    for number in 0..times {
        work(number);
    }
}

/// Pattern of [`counted_by_callgrind`] for callgrind, including suffixes of the compiler.
const COUNTED: &str = "*counted_by_callgrind*";
