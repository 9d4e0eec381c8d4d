//! The public face of the crate: what it reads and writes, against real bodies and real Go.

mod fixtures;
