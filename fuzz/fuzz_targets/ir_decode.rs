#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| skein_fuzz::decode::fuzz_workflow(bytes));
