#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kubevitals_fuzz_oracles::dns_message(data));
