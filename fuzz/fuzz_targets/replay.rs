#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| skein_fuzz::replay::fuzz_timed_inputs(bytes));
