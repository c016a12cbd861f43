#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| skein_fuzz::expr::fuzz_aip15(bytes));
