#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kubevitals_fuzz_oracles::gcm_response(data));
