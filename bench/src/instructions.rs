//! How many instructions a hot path takes, counted by callgrind and compared with a record.
//!
//! Times move with the machine and with what else it does; a count of instructions hardly does, so
//! that a change of two per cent can be seen. It is no time: a miss of the cache costs as much as a
//! hundred instructions and counts as one.
//!
//! - [`callgrind`] runs a program under valgrind and reads what came out;
//! - [`record`] is the file that counts are compared with;
//! - [`comparison`] is the table of both.

pub mod callgrind;
pub mod comparison;
pub mod record;

/// The function whose instructions are counted, with all that it calls: callgrind knows it by its
/// name.
///
/// `work` is given the number of each call.
#[inline(never)]
pub fn counted_by_callgrind(times: usize, work: &mut dyn FnMut(usize)) {
    for number in 0..times {
        work(number);
    }
}

/// The name by which callgrind finds [`counted_by_callgrind`], whatever the compiler adds to it.
const COUNTED: &str = "*counted_by_callgrind*";
