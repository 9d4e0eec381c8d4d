//! The program. Everything is in the library, so that tests run the same code in process.

use std::process::ExitCode;

use kubevitals::node::shim;
use kubevitals::{Input, exit_code, run};

/// Returns memory after a peak and fragments little: docs/adr/0019-jemalloc.md.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let input = Input::from_process();
    if let Some(code) = shim::run(&input) {
        return code;
    }
    // Before anything else: building a TLS configuration without a provider panics.
    kubevitals_tls::install_crypto_provider();
    exit_code(&run(&input, &mut std::io::stdout()))
}
