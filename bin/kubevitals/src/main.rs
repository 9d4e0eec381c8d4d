//! The program: everything it does is in the library, so that tests start the same thing in
//! process.

use std::process::ExitCode;

use kubevitals::{Input, exit_code, run};

/// Gives memory back after a peak and wastes little of it as nodes come and go:
/// docs/adr/0019-jemalloc.md.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // First of all: a TLS configuration built without a provider would panic.
    kubevitals_tls::install_crypto_provider();
    exit_code(&run(&Input::from_process(), &mut std::io::stdout()))
}
