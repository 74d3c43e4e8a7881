#![no_main]
//! Arbitrary bytes as what a worker process sends.

libfuzzer_sys::fuzz_target!(|data: &[u8]| veche_fuzz::runtime::run(data));
