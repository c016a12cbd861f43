#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| skein_fuzz::source::fuzz_source("a.yaml", bytes));
