#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| skein_fuzz::yaml::fuzz_plain_yaml(bytes));
